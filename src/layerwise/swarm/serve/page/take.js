/** Presets, and what can be taken away: commands, a checkpoint, a sweep or a search. */

import { call, latest, stream } from "./api.js";
import { app, at, button, copy, debounce, el, listen, muted, on, ranked, without, write } from "./dom.js";
import { setPlan } from "./plan.js";

const FORMATS = { folder: "Hugging Face folder", gguf: "GGUF" };
const asking = latest();
const makeChip = ({ label, plan }) => button(label, () => setPlan(plan, `${label}.`), plan);

function showPresets() {
  const { depth, plans } = app.server;
  const [layers, presets] = [ranked().map(({ layer }) => layer), []];
  if (layers.length === depth && depth > 2) {
    presets.push({ label: `without layer ${layers[0]}`, plan: without(layers[0]) });
    presets.push({ label: `without layers ${layers[0]} and ${layers[1]}`, plan: without(layers[0], layers[1]) });
  }
  const [first, last] = [Math.round(depth * 0.4), Math.round(depth * 0.4) + Math.max(2, Math.round(depth / 8)) - 1];
  const damped = `0-${first - 1} (${first}-${last}):gain=0.5*2 ${last + 1}-${depth - 1}`;
  if (first && last < depth - 1) presets.push({ label: `${first}-${last} twice, damped`, plan: damped });
  at("presets").replaceChildren(muted("Try"), ...[...presets, ...plans].map(makeChip));
}

async function showPainters() {
  const [first, last] = ["first", "last"].map((id) => Number(at(id).value)).sort((one, other) => one - other);
  write("window", first === last ? `Layer ${first}` : `Layers ${first} to ${last}`);
  await asking(async (signal) => {
    const { presets } = await call("api/presets", { first, last }, signal);
    at("painters").replaceChildren(...presets.map(makeChip));
  }).catch(({ message }) => at("painters").replaceChildren(muted(message)));
}

function showCommands() {
  const line = (text) => el("li", {}, el("code", {}, text), button("copy", ({ target }) => copy(text, target)));
  at("commands").replaceChildren(...Object.values(app.plan.commands).filter(Boolean).map(line));
  const reason = app.plan.can_save[at("save-format").value];
  write("reason", reason ?? "");
  at("save").querySelector("button").disabled = Boolean(reason);
}

/** Let a form run a command: its lines are streamed below it. */
function connect(id, path, makeBody, describeEnd) {
  const [log, pressed] = [at(id).querySelector("pre"), at(id).querySelector("button")];
  const add = (line) => {
    log.append(`${line}\n`);
    log.scrollTop = log.scrollHeight;
  };
  listen(id, "submit", async (submitted) => {
    submitted.preventDefault();
    log.replaceChildren();
    [log.hidden, pressed.disabled] = [false, true];
    try {
      const body = { plan: app.plan.plan, ...makeBody() };
      for await (const event of stream(path, body)) add(event.done ? describeEnd(event) : event.line);
    } catch ({ message }) {
      add(message);
    }
    pressed.disabled = false;
  });
}

export function startTake() {
  const { depth, formats } = app.server;
  for (const [id, share] of [["first", 1 / 3], ["last", 0.6]]) {
    Object.assign(at(id), { max: depth - 1, value: Math.floor(depth * share) });
    listen(id, "input", debounce(80, showPainters));
  }
  at("save-format").replaceChildren(...formats.map((value) => el("option", { value }, FORMATS[value] ?? value)));
  at("budget").value = `layers=${depth - 2}`;
  listen("save-format", "change", showCommands);
  listen("verb", "change", () => (at("budget-label").hidden = at("verb").value !== "search"));
  connect("save", "api/save", () => ({ output: at("save-name").value, format: at("save-format").value }),
    ({ path }) => `saved: ${path}`);
  connect("start", "api/start", () => {
    const text = (at("own-text").checked && at("text").value) || null;
    return { verb: at("verb").value, budget: at("budget").value, text };
  }, ({ exit, report }) => (report ? `report: ${report}` : `exit status ${exit}`));
  on("plan", showCommands);
  on("measured", showPresets);
  showPresets();
  showPainters();
}
