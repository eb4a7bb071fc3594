/** Presets, and what can be taken away: commands, a checkpoint, a sweep or a search. */

import { call, latest, stream } from "./api.js";
import { app, at, button, copy, debounce, el, listen, muted, on, ranked, without, write } from "./dom.js";
import { setPlan } from "./plan.js";

/** Commands of the form, and the names of their arguments. */
const ACTIONS = { folder: ["save as a Hugging Face folder", "name"], gguf: ["save as GGUF", "name"],
  sweep: ["sweep", ""], search: ["search", "budget"] };
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
  write("window", first === last ? `Apply to layer ${first}:` : `Apply to layers ${first} to ${last}:`);
  await asking(async (signal) => {
    const { presets } = await call("api/presets", { first, last }, signal);
    at("painters").replaceChildren(...presets.map(makeChip));
  }).catch(({ message }) => at("painters").replaceChildren(muted(message)));
}

function showCommands() {
  const line = (text) => el("li", {}, el("code", {}, text), button("copy", ({ target }) => copy(text, target)));
  at("commands").replaceChildren(...Object.values(app.plan.commands).filter(Boolean).map(line));
  const reason = app.plan.can_save[at("action").value];
  write("reason", reason ?? "");
  at("run").querySelector("button").disabled = Boolean(reason);
}

function showArgument() {
  const action = at("action").value;
  const placeholder = ACTIONS[action][1];
  Object.assign(at("argument"), { placeholder, value: action === "search" ? `layers=${app.server.depth - 2}` : "" });
  at("argument").hidden = at("argument").disabled = !placeholder;
  at("own-label").hidden = placeholder === "name";
  if (app.plan) showCommands();
}

/** Run a command; its lines are streamed below the form. */
async function run(submitted) {
  submitted.preventDefault();
  const [log, pressed] = [at("run").querySelector("pre"), at("run").querySelector("button")];
  const [action, argument] = [at("action").value, at("argument").value];
  const text = (at("own-text").checked && at("text").value) || null;
  const save = { plan: app.plan.plan, output: argument, format: action };
  const start = { plan: app.plan.plan, verb: action, text, ...(action === "search" && { budget: argument }) };
  const isSaved = ACTIONS[action][1] === "name";
  log.replaceChildren();
  [log.hidden, pressed.disabled] = [false, true];
  try {
    for await (const event of stream(isSaved ? "api/save" : "api/start", isSaved ? save : start)) {
      const end = event.path ?? event.report ?? `exit status ${event.exit}`;
      log.append(`${event.done ? end : event.line}\n`);
      log.scrollTop = log.scrollHeight;
    }
  } catch ({ message }) {
    log.append(message);
  }
  pressed.disabled = false;
}

export function startTake() {
  const { depth, formats } = app.server;
  for (const [id, share] of [["first", 1 / 3], ["last", 0.6]]) {
    Object.assign(at(id), { max: depth - 1, value: Math.floor(depth * share) });
    listen(id, "input", debounce(80, showPainters));
  }
  const actions = [...formats, "sweep", "search"];
  at("action").replaceChildren(...actions.map((value) => el("option", { value }, ACTIONS[value][0])));
  listen("action", "change", showArgument);
  listen("run", "submit", run);
  on("plan", showCommands);
  on("measured", showPresets);
  showArgument();
  showPresets();
  showPainters();
}
