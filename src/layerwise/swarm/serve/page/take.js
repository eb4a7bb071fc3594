/** Presets, and what can be taken away: commands, a checkpoint, a sweep or a search. */

import { stream } from "./api.js";
import { app, at, button, copy, el, listen, on, ranked, without, write } from "./dom.js";
import { setPlan } from "./plan.js";
import { select } from "./strip.js";

/** Commands of the form, and the names of their arguments. */
const ACTIONS = { folder: ["save as a Hugging Face folder", "name"], gguf: ["save as GGUF", "name"],
  sweep: ["sweep", ""], search: ["search", "budget"] };

function showPresets() {
  const { depth, plans } = app.server;
  const [least, second] = ranked().map(({ layer }) => layer);
  const presets = [{ label: `without layer ${least}`, plan: without(least) },
    { label: `without layers ${least} and ${second}`, plan: without(least, second) }];
  const known = app.layers.size === depth && depth > 2 ? presets : [];
  const [first, last] = [Math.round(depth * 0.4), Math.round(depth * 0.4) + Math.max(2, Math.round(depth / 8)) - 1];
  if (first && last < depth - 1) {
    const plan = `0-${first - 1} (${first}-${last}):gain=0.5*2 ${last + 1}-${depth - 1}`;
    known.push({ label: `layers ${first} to ${last} twice, damped`, plan });
  }
  const chips = [...known, ...plans].map(({ label, plan }) => button(label, () => setPlan(plan, `${label}.`), plan));
  at("presets").replaceChildren(chips.length ? "Try" : "", ...chips);
}

/** Select as many layers in the middle of the plan as the slider says. */
function selectMiddle({ target }) {
  const first = Math.floor((app.plan.stages.length - target.value) / 2);
  select(first, first + Number(target.value) - 1);
}

function showCommands() {
  const copyButton = (text) => button("copy", ({ target }) => copy(text, target), text);
  const line = (text) => el("li", {}, copyButton(text), " ", el("code", {}, text));
  at("commands").replaceChildren(...Object.values(app.plan.commands).filter(Boolean).map(line));
  at("start").disabled = Boolean(write("reason", app.plan.can_save[at("action").value] ?? ""));
}

function showArgument() {
  const action = at("action").value;
  const name = ACTIONS[action][1];
  Object.assign(at("argument"), { hidden: !name, disabled: !name, placeholder: name, ariaLabel: name });
  at("argument").value = action === "search" ? `layers=${app.server.depth - 2}` : "";
  at("own-label").hidden = name === "name";
  if (app.plan) showCommands();
}

/** Run a command; its lines are streamed below the form. */
async function run(submitted) {
  submitted.preventDefault();
  const log = at("log");
  const [{ plan }, action, argument] = [app.plan, at("action").value, at("argument").value];
  const text = (at("own-text").checked && at("text").value) || null;
  const [path, body] = ACTIONS[action][1] === "name" ? ["api/save", { output: argument, format: action }]
    : ["api/start", { verb: action, text, ...(action === "search" && { budget: argument }) }];
  log.replaceChildren();
  log.hidden = false;
  at("run").inert = true;
  try {
    for await (const event of stream(path, { plan, ...body })) {
      const end = event.path ?? event.report ?? `exit status ${event.exit}`;
      log.append(`${event.done ? end : event.line}\n`);
      log.scrollTop = log.scrollHeight;
    }
  } catch ({ message }) {
    log.append(message);
  }
  at("run").inert = false;
}

export function startTake() {
  const actions = [...app.server.formats, "sweep", "search"];
  at("action").replaceChildren(...actions.map((value) => el("option", { value }, ACTIONS[value][0])));
  listen("action", "change", showArgument);
  listen("run", "submit", run);
  listen("middle", "input", selectMiddle);
  on("plan", showCommands);
  on("plan", () => (at("middle").max = app.plan.stages.length));
  on("measured", showPresets);
  showArgument();
  showPresets();
}
