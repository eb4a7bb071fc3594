/** Presets, and what can be taken away: commands, a checkpoint, a sweep or a search. */

import { call, latest, stream } from "./api.js";
import { app, at, copy, debounce, el, on, ranked, without } from "./dom.js";
import { setPlan } from "./plan.js";

const asking = latest();
const chip = ({ label, plan }) => el("button", { type: "button", title: plan, onclick: () => setPlan(plan, `${label}.`) }, label);

function showPresets() {
  const { depth, plans } = app.server;
  const [first, last] = [Math.round(depth * 0.4), Math.round(depth * 0.4) + Math.max(1, Math.round(depth / 8)) - 1];
  const range = first === last ? `${first}` : `${first}-${last}`;
  const presets = [{ label: `${range} twice, damped`, plan: `0-${first - 1} (${range}):gain=0.5*2 ${last + 1}-${depth - 1}` }, ...plans];
  const layers = ranked().map((each) => each.layer);
  if (layers.length === depth && depth > 2) {
    presets.unshift({ label: `without layer ${layers[0]}`, plan: without(layers[0]) },
      { label: `without layers ${layers[0]} and ${layers[1]}`, plan: without(layers[0], layers[1]) });
  }
  at("presets").replaceChildren(...presets.map(chip));
}

const showPainters = debounce(80, () => asking(async (signal) => {
  const [first, last] = [at("first"), at("last")].map((each) => Number(each.value)).sort((one, other) => one - other);
  at("window").textContent = first === last ? `layer ${first}:` : `layers ${first} to ${last}:`;
  const { presets } = await call("api/presets", { first, last }, signal);
  at("painters").replaceChildren(...presets.map(chip));
}).catch(() => at("painters").replaceChildren("not all layers at once")));

async function log(form, path, body, last) {
  const [lines, button] = [form.querySelector(".log"), form.querySelector("button")];
  const write = (text) => (lines.append(`${text}\n`), (lines.scrollTop = lines.scrollHeight));
  lines.hidden = false;
  lines.replaceChildren();
  button.disabled = true;
  try {
    for await (const event of stream(path, body)) write(event.done ? last(event) : event.line);
  } catch (error) {
    write(error.message);
  }
  button.disabled = false;
}

function showCommands() {
  const line = (command) => el("li", {}, el("code", {}, command), el("button", { type: "button", onclick: (event) => copy(command, event.target) }, "copy"));
  at("commands").replaceChildren(...Object.values(app.plan.commands).map(line));
  const reason = app.plan.can_save[at("save-format").value];
  at("save-reason").textContent = reason ?? "";
  at("save").querySelector("button").disabled = Boolean(reason);
}

export function startTake() {
  const { depth, formats } = app.server;
  for (const [id, value] of [["first", Math.floor(depth / 3)], ["last", Math.ceil((2 * depth) / 3) - 1]]) {
    at(id).max = depth - 1;
    at(id).value = value;
    at(id).addEventListener("input", showPainters);
  }
  at("save-format").replaceChildren(...formats.map((each) => el("option", { value: each }, each === "gguf" ? "GGUF" : each)));
  at("save-format").addEventListener("change", showCommands);
  at("save").addEventListener("submit", (event) => {
    event.preventDefault();
    const body = { plan: app.plan.plan, output: at("save-name").value, format: at("save-format").value };
    log(event.target, "api/save", body, ({ path }) => `saved: ${path}`);
  });
  at("budget").value = `layers=${depth - 2}`;
  at("verb").addEventListener("change", () => (at("budget-label").hidden = at("verb").value !== "search"));
  at("start").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = at("own-text").checked ? at("text").value : null;
    const body = { verb: at("verb").value, plan: app.plan.plan, budget: at("budget").value, text };
    log(event.target, "api/start", body, ({ exit, report }) => (report ? `report: ${report}` : `ended with status ${exit}`));
  });
  on("plan", showCommands);
  on("measured", showPresets);
  showPresets();
  showPainters();
}
