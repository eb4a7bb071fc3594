/** The plan: edits, history, its text, what it does, what it costs, and its wiring. */

import { call } from "./api.js";
import { app, at, bytes, change, copy, count, debounce, el, emit, listen, numbers, quantity, say } from "./dom.js";

const history = { plans: [], at: -1, isTyping: false };
let queue = Promise.resolve();

/** Run edits one after the other: each starts from the plan that the last one made. */
const inOrder = (work) => (queue = queue.then(work).catch(() => false));

/** Set the plan to a text, or to what `text()` returns when its turn comes. Resolves to false if it is not valid. */
export function setPlan(text, message, isTyping = false) {
  type.cancel();
  return inOrder(async () => {
    const plan = typeof text === "function" ? text() : text;
    if (!plan && !isTyping) return void say("A plan must run at least one layer.");
    return (await apply(plan, isTyping)) && remember(message, isTyping);
  });
}

/** Change the list of stage texts. */
export const edit = (work, message) => setPlan(() => work(app.plan.stages.map(({ text }) => text)).join(" "), message);

const travel = (step) =>
  inOrder(async () => {
    const plan = history.plans[history.at + step];
    if (plan === undefined || !(await apply(plan))) return;
    history.at += step;
    history.isTyping = false;
    showHistory(step < 0 ? "Undone." : "Redone.");
  });

async function apply(text, isTyping) {
  try {
    app.plan = await call("api/plan", { plan: text });
  } catch (error) {
    if (error.status) showPlanError(error, text);
    return false;
  }
  showPlanError(null);
  if (!isTyping || document.activeElement !== at("plan")) at("plan").value = app.plan.plan;
  showDetails(app.plan);
  emit("plan");
  return true;
}

/** Add the plan to the history; what is typed in a row is one entry. */
function remember(message, isTyping) {
  if (app.plan.plan !== history.plans[history.at]) {
    if (!isTyping || !history.isTyping) history.at += 1;
    history.plans.splice(history.at, Infinity, app.plan.plan);
    history.isTyping = isTyping;
  }
  showHistory(message);
  return true;
}

function showHistory(message) {
  at("undo").disabled = history.at <= 0;
  at("redo").disabled = history.at >= history.plans.length - 1;
  if (message) say(`${message} The plan is ${app.plan.plan}.`);
}

function showPlanError(error, text) {
  at("plan-error").hidden = !error;
  at("plan").setAttribute("aria-invalid", Boolean(error));
  if (!error) return;
  const start = Math.max(0, error.position - 40);
  const mark = `${text.slice(start, error.position + 30)}\n${" ".repeat(error.position - start)}^`;
  at("plan-error").replaceChildren(error.position === null ? "" : el("pre", {}, mark), error.message.split("\n")[0]);
}

const FIGURES = [["layer evaluations", "evaluations"], ["sequential stages", "stages"], ["layers in memory", "layers"],
  ["KV slots", "slots"], ["parameters", "parameters", quantity], ["of weights", "bytes", bytes]];

function showDetails({ plan, original, explain, cost, matrix, steps }) {
  at("explain").replaceChildren(...explain.map((line) => el("li", {}, line)));
  at("cost").replaceChildren(...FIGURES.map(([name, key, format = count]) => {
    const [before, now] = [original.cost[key], cost[key]];
    const difference = el("em", { class: now > before ? "more" : "" }, now === before ? "" : ` ${change(before, now)}`);
    return el("li", {}, el("b", {}, format(now)), ` ${name}`, difference);
  }));
  at("reset").disabled = plan === original.plan;
  at("wiring").toggleAttribute("hidden", !matrix);
  at("reads").textContent = matrix ? "" : "The plan has too many steps for a picture of its wiring.";
  if (matrix) drawWiring(matrix, steps);
}

/** Draw the matrix A: rows are steps, the last one the output; columns are the embedding and the steps. */
function drawWiring(matrix, steps) {
  const [svg, size] = [at("wiring"), matrix.length];
  const cells = numbers(size).flatMap((column) => {
    const fill = column ? depthColor(Number(/(\d+)[^:]*$/.exec(steps[column - 1])[1])) : "var(--quiet)";
    const starts = numbers(size).filter((row) => !row || matrix[row][column] !== matrix[row - 1][column]);
    return starts.filter((row) => matrix[row][column]).map((row) => {
      const end = starts.find((each) => each > row) ?? size;
      const cell = el("rect", { x: column, y: row, width: 1, height: end - row });
      Object.assign(cell.style, { fill, opacity: Math.min(1, 0.3 + 0.7 * Math.abs(matrix[row][column])) });
      return cell;
    });
  });
  const cursor = el("rect", { id: "cursor", width: size, height: 1 });
  svg.setAttribute("viewBox", `0 0 ${size} ${size}`);
  svg.replaceChildren(...cells, cursor);
  svg.onpointermove = ({ clientY }) => {
    const box = svg.getBoundingClientRect();
    const row = Math.min(size - 1, Math.max(0, Math.floor(((clientY - box.top) / box.height) * size)));
    const share = (weight) => (weight === 1 ? "" : `${Number(weight.toFixed(3))} of `);
    const read = ["the embedding", ...steps].map((name, column) => matrix[row][column] && share(matrix[row][column]) + name);
    const reader = row < steps.length ? `Step ${row + 1}, layer ${steps[row]},` : "The output";
    at("reads").textContent = `${reader} reads ${read.filter(Boolean).join(", ")}.`;
    cursor.setAttribute("y", row);
  };
}

function depthColor(layer) {
  const place = (layer / Math.max(1, app.server.depth - 1)) * 3;
  const stop = Math.min(2, Math.floor(place));
  return `color-mix(in oklab, var(--d${stop}), var(--d${stop + 1}) ${100 * (place - stop)}%)`;
}

const type = debounce(200, () => setPlan(at("plan").value, "", true));

export function startPlan() {
  at("plan").maxLength = app.server.limits.plan;
  listen("plan", "input", type);
  listen("plan", "change", async () => {
    if (await setPlan(at("plan").value, "", true)) at("plan").value = app.plan.plan;
  });
  listen("undo", "click", () => travel(-1));
  listen("redo", "click", () => travel(1));
  listen("reset", "click", () => setPlan(() => app.plan.original.plan, "All layers run in order."));
  listen("copy-plan", "click", ({ target }) => copy(app.plan.plan, target));
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    const isEditing = event.target.matches("input:not([type=range], [type=checkbox]), textarea");
    if (isEditing || !(event.ctrlKey || event.metaKey) || event.altKey || (key !== "z" && key !== "y")) return;
    event.preventDefault();
    travel(key === "y" || event.shiftKey ? 1 : -1);
  });
}
