/** The plan: edits, history, its text, what it does, what it costs, and its wiring. */

import { call } from "./api.js";
import { app, at, bytes, change, copy, count, debounce, el, emit, isIdentity, listen, quantity, say, without, write,
} from "./dom.js";

const FIGURES = [["layer evaluations", "evaluations"], ["sequential stages", "stages"], ["layers in memory", "layers"],
  ["KV slots", "slots"], ["parameters", "parameters", quantity], ["of weights", "bytes", bytes]];
const past = { plans: [], at: -1, isTyping: false };
let queue = Promise.resolve();

/** Run edits one after the other: each starts from the plan that the last one made. */
const inOrder = (work) => (queue = queue.then(work).catch(() => false));

/** Set the plan to a text, or to what `text()` returns when its turn comes. Resolves to true if it is valid. */
export function setPlan(text, message, isTyping = false) {
  type.cancel();
  return inOrder(async () => {
    const plan = typeof text === "function" ? text() : text;
    if (!plan && !isTyping) return void say("A plan must run at least one layer.");
    if (!(await apply(plan, isTyping))) return false;
    if (app.plan.plan !== past.plans[past.at]) {
      if (!isTyping || !past.isTyping) past.at += 1; // what is typed in a row is one entry
      past.plans.splice(past.at, Infinity, app.plan.plan);
      past.isTyping = isTyping;
    }
    return showPast(message);
  });
}

/** Change the list of stage texts. */
export const edit = (work, message) => setPlan(() => work(app.plan.stages.map(({ text }) => text)).join(" "), message);

const travel = (step) => inOrder(async () => {
  const plan = past.plans[past.at + step];
  if (plan === undefined || !(await apply(plan))) return;
  past.at += step;
  past.isTyping = false;
  showPast(step < 0 ? "Undone." : "Redone.");
});

async function apply(text, isTyping) {
  try {
    app.plan = await call("api/plan", { plan: text });
  } catch (error) {
    if (error.status) showPlanError(error, text);
    return false;
  }
  showPlanError(null);
  if (!isTyping || document.activeElement !== at("plan")) showText(true);
  showDetails(app.plan);
  emit("plan");
  return true;
}

const showText = (isValid) => isValid && (at("plan").value = app.plan.plan);

function showPast(message) {
  at("undo").disabled = past.at <= 0;
  at("redo").disabled = past.at >= past.plans.length - 1;
  if (message) say(`${message} The plan is ${app.plan.plan}.`);
  return true;
}

function showPlanError(error, text) {
  at("plan-error").hidden = !error;
  at("plan").setAttribute("aria-invalid", Boolean(error));
  if (!error) return;
  const start = Math.max(0, error.position - 40);
  const mark = `${text.slice(start, error.position + 30)}\n${" ".repeat(error.position - start)}^`;
  at("plan-error").replaceChildren(error.position === null ? "" : el("pre", {}, mark), error.message.split("\n")[0]);
}

function showDetails({ original, explain, cost, matrix, steps }) {
  at("explain").replaceChildren(...explain.map((line) => el("li", {}, line)));
  at("cost").replaceChildren(...FIGURES.map(([name, key, format = count]) => {
    const [before, now] = [original[key], cost[key]];
    const difference = el("em", { class: now > before ? "more" : "" }, now === before ? "" : ` ${change(before, now)}`);
    return el("li", {}, el("b", {}, format(now)), ` ${name}`, difference);
  }));
  at("reset").disabled = isIdentity();
  at("wiring").toggleAttribute("hidden", !matrix);
  write("reads", matrix ? "Wiring, on the right: row by row, which earlier outputs each step reads."
    : "The plan has too many steps for a picture of its wiring.");
  if (matrix) drawWiring(matrix, steps);
}

/** Draw the matrix A: rows are steps, the last one the output; columns are the embedding and the steps. */
function drawWiring(matrix, steps) {
  const [canvas, size] = [at("wiring"), matrix.length];
  canvas.width = canvas.height = size;
  const drawing = canvas.getContext("2d");
  const share = (weight) => (weight === 1 ? "" : `${Number(weight.toFixed(3))} of `);
  const words = matrix.map((weights, y) => {
    weights.forEach((weight, x) => {
      drawing.fillStyle = x ? depthColor(Number(/(\d+)[^:]*$/.exec(steps[x - 1])[1])) : "#8d8f94";
      drawing.globalAlpha = weight && Math.min(1, 0.3 + 0.7 * Math.abs(weight));
      drawing.fillRect(x, y, 1, 1);
    });
    const read = ["the embedding", ...steps].flatMap((name, x) => (weights[x] ? [share(weights[x]) + name] : []));
    return `${y < steps.length ? `Step ${y + 1}, layer ${steps[y]},` : "The output"} reads ${read.join(", ")}.`;
  });
  const rowOf = ({ offsetY }) => Math.floor((offsetY / canvas.clientHeight) * size);
  canvas.onpointermove = (event) => write("reads", words[rowOf(event)] ?? "");
}

function depthColor(layer) {
  const place = (layer / Math.max(1, app.server.depth - 1)) * 3;
  const [stop, stops] = [Math.min(2, Math.floor(place)), ["#6a3fa3", "#3280b3", "#36b083", "#dfd03c"]];
  return `color-mix(in oklab, ${stops[stop]}, ${stops[stop + 1]} ${100 * (place - stop)}%)`;
}

const type = debounce(200, () => setPlan(at("plan").value, "", true));

export function startPlan() {
  at("plan").maxLength = app.server.limits.plan;
  listen("plan", "input", type);
  listen("plan", "change", () => setPlan(at("plan").value, "", true).then(showText));
  listen("undo", "click", () => travel(-1));
  listen("redo", "click", () => travel(1));
  listen("reset", "click", () => setPlan(without(), "All layers run in order."));
  listen("copy-plan", "click", ({ target }) => copy(app.plan.plan, target));
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    const isEditing = event.target.matches("input:not([type=range], [type=checkbox]), textarea");
    if (isEditing || !(event.ctrlKey || event.metaKey) || event.altKey || (key !== "z" && key !== "y")) return;
    event.preventDefault();
    travel(key === "y" || event.shiftKey ? 1 : -1);
  });
}
