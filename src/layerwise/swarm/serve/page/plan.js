/** The plan: edits, history, its text, what it does, what it costs, and its wiring. */

import { call } from "./api.js";
import { app, at, compare, copy, count, debounce, el, emit, plural, quantity, say } from "./dom.js";

const history = { entries: [], at: -1, isTyping: false };
let queue = Promise.resolve();

const inOrder = (work) => (queue = queue.then(work).catch(() => false));

/** Set the plan to a text, or to what `text()` returns when its turn comes; return false if it is not valid. */
export const setPlan = (text, message, isTyping = false) =>
  inOrder(async () => {
    const wanted = typeof text === "function" ? text() : text;
    if (!wanted.trim() && !isTyping) return void say("A plan must run at least one layer.");
    return (await apply(wanted, isTyping)) && remember(isTyping, message);
  });

/** Change the list of stage texts. */
export function edit(change, message) {
  type.cancel();
  return setPlan(() => change(app.plan.stages.map((stage) => stage.text)).join(" "), message);
}

async function apply(text, isTyping) {
  try {
    app.plan = await call("api/plan", { plan: text });
  } catch (error) {
    if (error.name !== "TypeError") showPlanError(error, text);
    return false;
  }
  showPlanError(null);
  if (!isTyping || document.activeElement !== at("plan")) at("plan").value = app.plan.plan;
  showDetails();
  emit("plan");
  return true;
}

function remember(isTyping, message) {
  const text = app.plan.plan;
  if (text !== history.entries[history.at]) {
    const keep = history.at + (isTyping && history.isTyping ? 0 : 1);
    history.entries = [...history.entries.slice(0, Math.max(keep, 1)), text].slice(history.at < 0 ? -1 : 0);
    history.at = history.entries.length - 1;
  }
  history.isTyping = isTyping;
  showHistory();
  if (message) say(`${message} The plan is ${text}.`);
  return true;
}

export const travel = (step) =>
  inOrder(async () => {
    const text = history.entries[history.at + step];
    if (text === undefined || !(await apply(text, false))) return;
    history.at += step;
    history.isTyping = false;
    showHistory();
    say(`${step < 0 ? "Undone." : "Redone."} The plan is ${text}.`);
  });

function showHistory() {
  at("undo").disabled = history.at <= 0;
  at("redo").disabled = history.at >= history.entries.length - 1;
}

function showPlanError(error, text = "") {
  at("plan-error").hidden = !error;
  at("plan").setAttribute("aria-invalid", error ? "true" : "false");
  if (!error) return;
  const parts = [el("p", {}, error.message.split("\n")[0])];
  if (error.position !== null) {
    const start = Math.max(0, error.position - 40);
    const shown = `${start ? "…" : ""}${text.slice(start, error.position + 30)}`;
    parts.push(el("pre", {}, `${shown}\n${" ".repeat(error.position - start + (start ? 1 : 0))}^`));
  }
  at("plan-error").replaceChildren(...parts);
}

const type = debounce(200, () => setPlan(at("plan").value, "", true));

function showDetails() {
  const { plan, original, explain, cost } = app.plan;
  at("explain").replaceChildren(...explain.map((line) => el("li", {}, line)));
  compare(at("cost"), [
    ["layer evaluations", original.cost.evaluations, cost.evaluations],
    ["sequential stages", original.cost.stages, cost.stages],
    ["layers in memory", original.cost.layers, cost.layers],
    ["KV slots", original.cost.slots, cost.slots],
    ["parameters", original.cost.parameters, cost.parameters, quantity],
    ["weights", original.cost.bytes, cost.bytes, (value) => quantity(value, "B")],
  ]);
  at("reset").disabled = plan === original.plan;
  showWiring(app.plan);
}

/** Draw the matrix A: rows are steps, the last one the output; columns are the embedding and the steps. */
function showWiring({ matrix, steps }) {
  const svg = at("wiring");
  svg.replaceChildren();
  svg.toggleAttribute("hidden", !matrix);
  const rest = matrix ? "Point at a row." : `${plural(steps.length, "step")}: too many to draw.`;
  at("reads").textContent = rest;
  if (!matrix) return;
  const size = matrix.length;
  svg.setAttribute("viewBox", `0 0 ${size} ${size}`);
  for (let column = 0; column < size; column += 1) {
    for (let row = 0, end; row < size; row = end) {
      const weight = matrix[row][column];
      for (end = row + 1; end < size && matrix[end][column] === weight; ) end += 1;
      if (!weight) continue;
      const cell = el("rect", { x: column, y: row, width: 1, height: end - row });
      cell.style.fill = column ? depthColor(parseInt(steps[column - 1].replace(/^.*:/, ""), 10)) : "var(--quiet)";
      cell.style.opacity = Math.min(1, 0.3 + 0.7 * Math.abs(weight));
      svg.append(cell);
    }
  }
  const cursor = svg.appendChild(el("rect", { class: "cursor", x: 0, width: size, height: 1, visibility: "hidden" }));
  const names = ["the embedding", ...steps];
  svg.onpointermove = (event) => {
    const box = svg.getBoundingClientRect();
    const row = Math.min(size - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * size)));
    const share = (weight) => (weight === 1 ? "" : `${count(weight)} of `);
    const read = names.flatMap((name, column) => (matrix[row][column] ? share(matrix[row][column]) + name : []));
    const list = read.length > 9 ? [...read.slice(0, 3), "…", ...read.slice(-5)] : read;
    cursor.setAttribute("y", row);
    cursor.setAttribute("visibility", "visible");
    at("reads").textContent = `${row < steps.length ? `Step ${row + 1} (layer ${steps[row]})` : "The output"} reads ${list.join(", ")}.`;
  };
  svg.onpointerleave = () => {
    cursor.setAttribute("visibility", "hidden");
    at("reads").textContent = rest;
  };
}

/** Color of a layer by depth, in the stops of the report. */
function depthColor(layer) {
  const place = (layer / Math.max(1, app.server.depth - 1)) * 3;
  const stop = Math.min(2, Math.floor(place));
  return `color-mix(in oklab, var(--d${stop}), var(--d${stop + 1}) ${Math.round((place - stop) * 100)}%)`;
}

export function startPlan() {
  at("plan").maxLength = app.server.limits.plan;
  at("plan").addEventListener("input", type);
  at("plan").addEventListener("change", () => {
    type.cancel();
    setPlan(at("plan").value, "", true).then((isValid) => isValid && (at("plan").value = app.plan.plan));
  });
  at("undo").addEventListener("click", () => travel(-1));
  at("redo").addEventListener("click", () => travel(1));
  at("reset").addEventListener("click", () => setPlan(() => app.plan.original.plan, "All layers run again."));
  at("copy-plan").addEventListener("click", (event) => copy(app.plan.plan, event.target));
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.target.matches("input:not([type=range]), textarea")) return;
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    travel(key === "y" || event.shiftKey ? 1 : -1);
  });
}
