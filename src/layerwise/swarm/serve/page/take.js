/** Presets, and what can be taken away: commands, a checkpoint, a sweep or a search. */

import { call, latest, stream } from "./api.js";
import { app, at, button, copy, debounce, el, on, ranked, without } from "./dom.js";
import { setPlan } from "./plan.js";

const asking = latest();
const makeChip = ({ label, plan }) => button(label, () => setPlan(plan, `${label}.`), plan);

function showPresets() {
  const { depth, plans } = app.server;
  const presets = [...plans];
  const first = Math.round(depth * 0.4);
  const last = first + Math.max(1, Math.round(depth / 8)) - 1;
  if (first > 0 && last < depth - 1) {
    const range = first === last ? `${first}` : `${first}-${last}`;
    const plan = `0-${first - 1} (${range}):gain=0.5*2 ${last + 1}-${depth - 1}`;
    presets.unshift({ label: `${range} twice, damped`, plan });
  }
  const layers = ranked().map(({ layer }) => layer);
  if (layers.length === depth && depth > 2) {
    presets.unshift({ label: `without layers ${layers[0]} and ${layers[1]}`, plan: without(layers[0], layers[1]) });
    presets.unshift({ label: `without layer ${layers[0]}`, plan: without(layers[0]) });
  }
  at("presets").replaceChildren(el("span", { class: "muted" }, "Try"), ...presets.map(makeChip));
}

async function showPainters() {
  const [first, last] = ["first", "last"].map((id) => Number(at(id).value)).sort((one, other) => one - other);
  at("window").textContent = first === last ? `Layer ${first}` : `Layers ${first} to ${last}`;
  await asking(async (signal) => {
    const { presets } = await call("api/presets", { first, last }, signal);
    at("painters").replaceChildren(...presets.map(makeChip));
  }).catch(({ message }) => at("painters").replaceChildren(el("span", { class: "muted" }, message)));
}

function showCommands() {
  const line = (command) => el("li", {}, el("code", {}, command), button("copy", ({ target }) => copy(command, target)));
  at("commands").replaceChildren(...Object.values(app.plan.commands).filter(Boolean).map(line));
  const reason = app.plan.can_save[at("save-format").value];
  at("save-reason").textContent = reason ?? "";
  at("save").querySelector("button").disabled = Boolean(reason);
}

/** Let a form run a command: its lines are streamed below it. */
function connect(id, path, makeBody, describeEnd) {
  at(id).addEventListener("submit", async (event) => {
    event.preventDefault();
    const [log, pressed] = [at(id).querySelector(".log"), at(id).querySelector("button")];
    const write = (line) => {
      log.append(`${line}\n`);
      log.scrollTop = log.scrollHeight;
    };
    log.replaceChildren();
    log.hidden = false;
    pressed.disabled = true;
    try {
      for await (const each of stream(path, { plan: app.plan.plan, ...makeBody() })) write(each.done ? describeEnd(each) : each.line);
    } catch ({ message }) {
      write(message);
    }
    pressed.disabled = false;
  });
}

export function startTake() {
  const { depth, formats } = app.server;
  const redraw = debounce(80, showPainters);
  for (const [id, value] of [["first", Math.floor(depth / 3)], ["last", Math.ceil((2 * depth) / 3) - 1]]) {
    at(id).max = depth - 1;
    at(id).value = value;
    at(id).addEventListener("input", redraw);
  }
  const names = { folder: "Hugging Face folder", gguf: "GGUF" };
  at("save-format").replaceChildren(...formats.map((value) => el("option", { value }, names[value] ?? value)));
  at("save-format").addEventListener("change", showCommands);
  at("budget").value = `layers=${depth - 2}`;
  at("verb").addEventListener("change", () => (at("budget-label").hidden = at("verb").value !== "search"));
  const saved = () => ({ output: at("save-name").value, format: at("save-format").value });
  connect("save", "api/save", saved, ({ path }) => `saved: ${path}`);
  const text = () => (at("own-text").checked && at("text").value) || null;
  const started = () => ({ verb: at("verb").value, budget: at("budget").value, text: text() });
  connect("start", "api/start", started, ({ exit, report }) => (report ? `report: ${report}` : `exit status ${exit}`));
  on("plan", showCommands);
  on("measured", showPresets);
  showPresets();
  showPainters();
}
