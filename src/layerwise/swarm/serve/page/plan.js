/** The plan: edits, history, its text, what it does, what it costs, and its wiring. */

import { call } from "./api.js";
import { app, at, change, copy, count, debounce, el, emit, isIdentity, listen, quantity, say, without, write,
} from "./dom.js";

/** Costs: names, fields and formats. */
const STEPS = [["layer evaluations", "evaluations"], ["sequential stages", "stages"], ["layers in memory", "layers"]];
export const SIZES = [["KV slots", "slots"], ["parameters", "parameters", quantity],
  ["weights", "bytes", (value) => quantity(value, "B")]];

const past = { plans: [], at: -1 };
let queue = Promise.resolve();

/** Run edits one after the other: each starts from the plan that the last one made. */
const inOrder = (work) => (queue = queue.then(work).catch(() => false));

/** Set the plan to a text, or to what `text()` returns when its turn comes. Resolves to true if it is valid. */
export const setPlan = (text, message) => inOrder(async () => {
  if (!(await apply(typeof text === "function" ? text() : text))) return false;
  if (app.plan.plan !== past.plans[past.at]) past.plans.splice(++past.at, Infinity, app.plan.plan);
  return showPast(message);
});

/** Change the list of stage texts. */
export const edit = (work, message) => setPlan(() => work(app.plan.stages.map(({ text }) => text)).join(" "), message);

const travel = (step) => inOrder(async () => {
  const plan = past.plans[past.at + step];
  if (plan === undefined || !(await apply(plan))) return;
  past.at += step;
  showPast(step < 0 ? "Undone." : "Redone.");
});

function showPast(message) {
  at("plan").value = app.plan.plan;
  at("undo").disabled = past.at <= 0;
  at("redo").disabled = past.at >= past.plans.length - 1;
  if (message) say(`${message} The plan is ${app.plan.plan}.`);
  return true;
}

async function apply(text) {
  try {
    app.plan = await call("api/plan", { plan: text });
  } catch (error) {
    if (error.status) showPlanError(error, text);
    return false;
  }
  showPlanError(null);
  showDetails(app.plan);
  emit("plan");
  return true;
}

function showPlanError(error, text) {
  at("plan-error").hidden = !error;
  at("plan").setAttribute("aria-invalid", Boolean(error));
  if (!error) return;
  const start = Math.max(0, error.position - 40);
  const mark = `${text.slice(start, error.position + 30)}\n${" ".repeat(error.position - start)}^`;
  const place = text && error.position !== null ? el("pre", {}, mark) : "";
  at("plan-error").replaceChildren(place, error.message.split("\n")[0]);
}

function showDetails({ original, explain, cost, matrix, steps }) {
  at("explain").replaceChildren(...explain.map((line) => el("li", {}, line)));
  at("cost").replaceChildren(...[...STEPS, ...SIZES].map(([name, key, format = count]) => {
    const difference = el("em", { class: cost[key] > original[key] ? "more" : "" }, change(original[key], cost[key]));
    return el("li", {}, el("b", {}, format(cost[key])), ` ${name} `, difference);
  }));
  at("reset").disabled = isIdentity();
  at("wiring").hidden = !matrix;
  write("reads", matrix ? "Wiring: each row is a step, and shows which earlier outputs it reads."
    : "The plan has too many steps for a picture of its wiring.");
  if (matrix) drawWiring(matrix, steps);
}

/** Draw the matrix A: rows are steps, the last one the output; columns are the embedding and the steps. */
function drawWiring(matrix, steps) {
  const share = (weight) => (weight === 1 ? "" : `${Number(weight.toFixed(3))} of `);
  const places = steps.map((name) => Number(/(\d+)[^:]*$/.exec(name)[1]) / app.server.depth);
  const colors = ["0.65 0 0", ...places.map((place) => `${0.45 + 0.4 * place} 0.13 ${300 - 200 * place}`)];
  at("wiring").replaceChildren(...matrix.map((weights, y) => {
    const read = ["the embedding", ...steps].flatMap((name, x) => (weights[x] ? [share(weights[x]) + name] : []));
    const words = `${y < steps.length ? `Step ${y + 1}, layer ${steps[y]},` : "The output"} reads ${read.join(", ")}.`;
    const opacity = (weight) => weight && Math.min(1, 0.3 + 0.7 * Math.abs(weight));
    const end = (x) => `${(100 * (x + 1)) / matrix.length}%`;
    const stops = weights.map((weight, x) => `oklch(${colors[x]} / ${opacity(weight)}) 0 ${end(x)}`);
    const row = el("div", { onpointerenter: () => write("reads", words) });
    row.style.background = `linear-gradient(90deg, ${stops})`;
    return row;
  }));
}

const type = debounce(200, () => at("plan").value === app.plan.plan || inOrder(() => apply(at("plan").value)));

export function startPlan() {
  at("plan").maxLength = app.server.limits.plan;
  listen("plan", "input", type);
  listen("plan", "change", () => setPlan(at("plan").value));
  listen("undo", "click", () => travel(-1));
  listen("redo", "click", () => travel(1));
  listen("reset", "click", () => setPlan(without(), "All layers run in order."));
  listen("copy-plan", "click", ({ target }) => copy(app.plan.plan, target));
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    const isEditing = event.target.matches("input:not([type=checkbox]), textarea");
    if (isEditing || !(event.ctrlKey || event.metaKey) || event.altKey || (key !== "z" && key !== "y")) return;
    event.preventDefault();
    travel(key === "y" || event.shiftKey ? 1 : -1);
  });
}
