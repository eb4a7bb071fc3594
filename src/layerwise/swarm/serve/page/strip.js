/** The strip: one block for each stage of the plan, and a ghost for each skipped layer. */

import { app, at, button, el, interval, on, plural, say } from "./dom.js";
import { edit } from "./plan.js";
import { EDITS, layOut, quantize } from "./stages.js";

const DRAG = 6; // pixels after which a press is a drag
const WIDTH = 37; // pixels that a block needs at least
const MIN_COLUMNS = 8;
const KNEE = 0.02; // nats/token up to which the scale is nearly linear
const HINT = "Click a layer to skip it. Drag it to move it. Drag above the layers, or shift-click, to select several.";

let items = [];
let focus = 0; // position of the item in the tab order
let selection = null; // { anchor, end }, indexes of stages
let gesture = null; // { mode: "press", "move" or "range", position, x, y, slot }

const blocks = () => [...at("strip").querySelectorAll(".item")];
const lastStage = () => app.plan.stages.length - 1;
const range = () => [Math.min(selection.anchor, selection.end), Math.max(selection.anchor, selection.end)];
const selected = () => app.plan.stages.slice(range()[0], range()[1] + 1).map((stage) => stage.text);
const isGroup = ({ stage }) => stage !== null && stage.kind !== "layer";
const nameOf = (item) => (isGroup(item) ? item.stage.text : `Layer ${item.stage?.text ?? item.layers[0]}`);

/** Place a loss increase between 0 and 1: nearly linear up to the knee, then logarithmic. */
function scale(delta) {
  const most = Math.max(1, ...[...app.layers.values()].map(({ high, delta: value }) => high ?? value));
  return Math.max(0, Math.min(1, Math.log1p(Math.max(0, delta) / KNEE) / Math.log1p(most / KNEE)));
}

function color(place) {
  const stop = Math.min(3, Math.floor(place * 4));
  return `color-mix(in oklab, var(--c${stop}), var(--c${stop + 1}) ${100 * (place * 4 - stop)}%)`;
}

function describe(layer) {
  const known = app.layers.get(layer);
  return known ? `loss increase when skipped ${interval(known)} nats/token` : "not measured yet";
}

function buildCell(layer, note) {
  const gauge = el("span", { class: "gauge" }, el("i", { class: "bar" }), el("i", { class: "whisker" }));
  const block = el("span", { class: "block" }, el("b", {}, layer), el("small", {}), el("em", {}, note));
  return el("span", { class: "cell", "data-layer": layer }, gauge, block);
}

function buildItem(item, position) {
  const { stage, layers } = item;
  const times = stage?.times > 1 ? `×${stage.times}` : "";
  const note = stage ? [stage.sublayer, stage.source, times].filter(Boolean).join(" ") : "skipped";
  const kind = isGroup(item) ? "bracket" : stage ? "" : "ghost";
  const made = el("button", { type: "button", class: `item ${kind}`, "data-position": position });
  if (isGroup(item)) made.append(el("code", { class: "caption" }, stage.text));
  made.append(el("span", { class: "cells" }, ...layers.map((layer) => buildCell(layer, isGroup(item) ? "" : note))));
  made.style.setProperty("--n", layers.length);
  return made;
}

/** Draw the strip again; blocks that moved slide to their new places. */
function render() {
  const strip = at("strip");
  const cells = () => [...strip.querySelectorAll(".cell")];
  const before = new Map(cells().map((cell) => [cell.dataset.layer, cell.getBoundingClientRect()]));
  const hadFocus = strip.contains(document.activeElement);
  gesture = null;
  items = layOut(app.plan);
  if (selection && range()[1] > lastStage()) selection = null;
  const size = items.flatMap(({ layers }) => layers).length;
  const rows = Math.ceil((size * WIDTH) / strip.clientWidth);
  strip.style.setProperty("--columns", Math.max(MIN_COLUMNS, Math.ceil(size / rows)));
  strip.replaceChildren(...items.map(buildItem), el("span", { id: "slot", hidden: "" }));
  showImportance();
  showSelection();
  setFocus(focus, hadFocus);
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const cell of cells()) {
    const [old, now] = [before.get(cell.dataset.layer), cell.getBoundingClientRect()];
    if (!old || (old.left === now.left && old.top === now.top)) continue;
    const transform = `translate(${old.left - now.left}px, ${old.top - now.top}px)`;
    cell.animate([{ transform }, { transform: "none" }], { duration: 220, easing: "cubic-bezier(.2, .8, .2, 1)" });
  }
}

/** Show the importance of the layers. The elements stay, so that a drag is not interrupted. */
export function showImportance() {
  for (const cell of at("strip").querySelectorAll(".cell")) {
    const layer = Number(cell.dataset.layer);
    const known = app.layers.get(layer);
    const details = known ? `, ${plural(known.documents, "document")}, ${plural(known.tokens, "token")}` : "";
    cell.title = `layer ${layer}: ${describe(layer)}${details}`;
    cell.className = `cell ${!known ? "unknown" : known.low === null ? "" : "measured"}`;
    if (!known) continue;
    const place = scale(known.delta);
    const values = { level: place, low: scale(known.low ?? known.delta), high: scale(known.high ?? known.delta) };
    for (const [name, value] of Object.entries(values)) cell.style.setProperty(`--${name}`, `${100 * value}%`);
    cell.style.setProperty("--tone", color(place));
    cell.style.setProperty("--on", `var(--on-${["low", "mid", "high"][(place > 0.44) + (place > 0.66)]})`);
    const digits = Math.abs(known.delta) < 0.995 ? 2 : 1;
    cell.querySelector("small").textContent = (known.delta < 0 ? "−" : "+") + Math.abs(known.delta).toFixed(digits);
  }
  for (const block of blocks()) {
    const item = items[block.dataset.position];
    const words = `${nameOf(item)}, ${describe(item.layers[0])}, ${item.stage ? "in the plan" : "skipped"}`;
    block.setAttribute("aria-label", isGroup(item) ? `${item.stage.kind} ${item.stage.text}, in the plan` : words);
  }
  showLegend();
}

function showLegend() {
  for (const value of [0.1, 1]) at("strip").style.setProperty(`--line${value * 10}`, `${100 * scale(value)}%`);
  const marks = [0, 0.1, 1, 10].filter((value) => !value || scale(value) < 1).map((value) => el("span", {}, value));
  for (const mark of marks) mark.style.left = `${100 * scale(Number(mark.textContent))}%`;
  const samples = { measured: "95% interval", unknown: "not measured yet", ghost: "skipped" };
  const rest = Object.entries(samples).map(([name, text]) => el("span", { class: `sample ${name}` }, el("i"), text));
  at("legend").replaceChildren("loss increase when skipped", el("span", { class: "scale" }, ...marks), "nats/token", ...rest);
}

function setFocus(position, isFocused = true) {
  focus = Math.max(0, Math.min(items.length - 1, position));
  blocks().forEach((block, index) => (block.tabIndex = index === focus ? 0 : -1));
  if (isFocused) blocks()[focus].focus();
}

function select(anchor, end = anchor) {
  selection = anchor === null ? null : { anchor: Math.min(anchor, lastStage()), end: Math.min(end, lastStage()) };
  showSelection();
}

function showSelection() {
  const [first, last] = selection ? range() : [1, 0];
  blocks().forEach((block, position) => {
    const { stage, index } = items[position];
    block.classList.toggle("selected", Boolean(stage) && index >= first && index <= last);
  });
  if (!selection) return at("tools").replaceChildren(el("span", { class: "muted" }, HINT));
  const texts = selected();
  const { sublayers, types } = app.server;
  const offers = Object.entries(EDITS).filter(([, { least = 1, isWrapped, isSublayer }]) =>
    texts.length >= least && (!isWrapped || texts.some((text) => /[([*]/.test(text))) && (!isSublayer || sublayers));
  const tools = offers.map(([text, { work, title }]) => button(text, () => changeSelection(work, text), title));
  const choice = el("select", { "aria-label": "Quantize" }, ...["quantize", ...types].map((each) => el("option", {}, each)));
  choice.onchange = () => changeSelection(quantize(choice.value), `quantize to ${choice.value}`);
  const words = texts.length === 1 ? texts[0] : `${texts[0]} … ${texts.at(-1)}`;
  const clear = button("✕", () => select(null), "Clear the selection (Escape)");
  at("tools").replaceChildren(el("code", {}, words), ...tools, ...(types.length ? [choice] : []), clear);
  if (!gesture) say(`Selected: ${texts.join(" ")}.`);
}

function changeSelection(work, name) {
  const [first, texts] = [range()[0], selected()];
  const changed = work(texts);
  selection = changed.length ? { anchor: first, end: first + changed.length - 1 } : null;
  edit((all) => all.toSpliced(first, texts.length, ...changed), `${name} ${texts.join(" ")}.`);
}

/** Skip a layer or restore it; select a group or block. */
function toggle(item) {
  const { stage, index, layers } = item;
  if (isGroup(item)) select(index);
  else if (stage) edit((texts) => texts.toSpliced(index, 1), `${nameOf(item)} skipped.`);
  else edit((texts) => texts.toSpliced(index, 0, `${layers[0]}`), `Layer ${layers[0]} restored.`);
}

/** Move an item so that `slot` other stages are before it. */
function move(item, slot) {
  const { stage, index, layers } = item;
  if (slot < 0 || slot > lastStage() + (stage ? 0 : 1) || (stage && slot === index)) return;
  const text = stage?.text ?? `${layers[0]}`;
  const message = `${nameOf(item)} moved to place ${slot + 1}.`;
  edit((texts) => (stage ? texts.toSpliced(index, 1) : texts).toSpliced(slot, 0, text), message);
}

/** Return the block at a point or nearest to it, except for one. */
function nearest({ clientX: x, clientY: y }, except) {
  const away = ({ left, right, top, bottom }) => Math.max(left - x, 0, x - right) + 9 * Math.max(top - y, 0, y - bottom);
  const boxes = blocks().map((block, position) => ({ position, box: block.getBoundingClientRect() }));
  const others = boxes.filter(({ position }) => position !== except);
  const { position, box } = others.sort((one, other) => away(one.box) - away(other.box))[0] ?? boxes[0];
  return { position, box, isRight: x > (box.left + box.right) / 2 };
}

function press(event) {
  if (event.button !== 0 || !event.isPrimary) return;
  const { position } = nearest(event);
  const mode = event.target.closest(".block, .caption") && !event.shiftKey ? "press" : "range";
  gesture = { mode, position, x: event.clientX, y: event.clientY };
  if (mode === "press") return;
  event.preventDefault();
  at("strip").setPointerCapture(event.pointerId);
  const anchor = selection?.anchor ?? items[focus]?.index ?? 0;
  select(event.shiftKey ? anchor : items[position].index, items[position].index);
}

function drag(event) {
  if (!gesture || !event.isPrimary) return;
  if (gesture.mode === "range") return select(selection.anchor, items[nearest(event).position].index);
  const [right, down] = [event.clientX - gesture.x, event.clientY - gesture.y];
  if (gesture.mode === "press" && Math.hypot(right, down) < DRAG) return;
  if (gesture.mode === "press") at("strip").setPointerCapture(event.pointerId);
  gesture.mode = "move";
  const dragged = blocks()[gesture.position];
  dragged.classList.add("dragged");
  dragged.style.translate = `${right}px ${down}px`;
  const { position, box, isRight } = nearest(event, gesture.position);
  const before = items.slice(0, position + (isRight ? 1 : 0));
  gesture.slot = before.filter((item, index) => item.stage && index !== gesture.position).length;
  const [slot, frame] = [at("slot"), at("strip").getBoundingClientRect()];
  slot.hidden = false;
  const place = { left: (isRight ? box.right : box.left) - frame.left, top: box.top - frame.top, height: box.height };
  for (const [name, value] of Object.entries(place)) slot.style[name] = `${value}px`;
}

function release(event) {
  if (!gesture || !event.isPrimary) return;
  const { mode, position, slot } = gesture;
  gesture = null;
  at("slot").hidden = true;
  blocks()[position].classList.remove("dragged");
  blocks()[position].style.translate = "";
  if (event.type === "pointercancel") return;
  setFocus(position, mode !== "range");
  if (mode === "move") move(items[position], slot);
  else if (mode === "press") toggle(items[position]);
  else showSelection();
}

function pressKey(event) {
  const item = items[focus];
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  const edge = { Home: 0, End: items.length - 1 }[event.key];
  if (event.key === "Escape") select(null);
  else if (edge !== undefined) setFocus(edge);
  else if (event.key === "Delete" || event.key === "Backspace") {
    if (selection) changeSelection(EDITS.skip.work, "skip");
    else if (item.stage) edit((texts) => texts.toSpliced(item.index, 1), `${nameOf(item)} skipped.`);
  } else if (!step || event.ctrlKey || event.metaKey) return;
  else if (event.altKey) {
    move(item, item.index + (item.stage || step < 0 ? step : 0));
    focus = Math.max(0, Math.min(items.length - 1, focus + step));
  } else if (event.shiftKey) {
    const anchor = selection?.anchor ?? item.index;
    setFocus(focus + step);
    select(anchor, items[focus].index);
  } else setFocus(focus + step);
  event.preventDefault();
}

export function startStrip() {
  const strip = at("strip");
  strip.addEventListener("pointerdown", press);
  strip.addEventListener("pointermove", drag);
  for (const name of ["pointerup", "pointercancel"]) strip.addEventListener(name, release);
  strip.addEventListener("keydown", pressKey);
  strip.addEventListener("focusin", ({ target }) => setFocus(Number(target.dataset.position), false));
  strip.addEventListener("click", ({ target, detail }) => {
    const block = target.closest(".item"); // a click by pointer has a detail and is handled by `release`
    if (!block || detail) return;
    setFocus(Number(block.dataset.position));
    toggle(items[focus]);
  });
  on("plan", render);
}
