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

const find = (selector) => [...at("strip").querySelectorAll(selector)];
const range = () => [Math.min(selection.anchor, selection.end), Math.max(selection.anchor, selection.end)];
const selected = () => app.plan.stages.slice(range()[0], range()[1] + 1).map(({ text }) => text);
const isGroup = ({ stage }) => stage !== null && stage.kind !== "layer";
const nameOf = (item) => (isGroup(item) ? item.stage.text : `Layer ${item.stage?.text ?? item.layers[0]}`);

/** Place a loss increase between 0 and 1: nearly linear up to the knee, then logarithmic. */
function scale(delta) {
  const most = Math.max(1, ...[...app.layers.values()].map(({ high, delta: value }) => high ?? value));
  return Math.min(1, Math.log1p(Math.max(0, delta) / KNEE) / Math.log1p(most / KNEE));
}

function describe(layer) {
  const known = app.layers.get(layer);
  return known ? `loss increase when skipped ${interval(known)} nats/token` : "not measured yet";
}

function buildItem(item, position) {
  const { stage, layers } = item;
  const times = stage?.times > 1 ? `×${stage.times}` : "";
  const note = stage ? [stage.sublayer, stage.source, times].filter(Boolean).join(" ") : "skipped";
  const caption = isGroup(item) ? [el("code", { class: "caption" }, stage.text)] : [];
  const cells = layers.map((layer) => el("span", { class: "cell", "data-layer": layer },
    el("span", { class: "gauge" }, el("i", { class: "bar" }), el("i", { class: "whisker" })),
    el("span", { class: "block" }, el("b", {}, layer), el("small"), el("em", {}, isGroup(item) ? "" : note))));
  const kind = isGroup(item) ? "bracket" : stage ? "" : "ghost";
  const made = el("button", { type: "button", class: `item ${kind}`, "data-position": position }, ...caption);
  made.append(el("span", { class: "cells" }, ...cells));
  made.style.setProperty("--n", layers.length);
  return made;
}

/** Draw the strip again; blocks that moved slide to their new places. */
function render() {
  const strip = at("strip");
  const before = new Map(find(".cell").map((cell) => [cell.dataset.layer, cell.getBoundingClientRect()]));
  const hadFocus = strip.contains(document.activeElement);
  gesture = null;
  items = layOut(app.plan);
  if (selection && range()[1] >= app.plan.stages.length) selection = null;
  const size = items.flatMap(({ layers }) => layers).length;
  const rows = Math.ceil((size * WIDTH) / strip.clientWidth);
  strip.style.setProperty("--columns", Math.max(MIN_COLUMNS, Math.ceil(size / rows)));
  strip.replaceChildren(...items.map(buildItem), el("span", { id: "slot", hidden: "" }));
  showImportance();
  showSelection();
  setFocus(focus, hadFocus);
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const cell of find(".cell")) {
    const [old, now] = [before.get(cell.dataset.layer), cell.getBoundingClientRect()];
    if (!old || (old.left === now.left && old.top === now.top)) continue;
    const transform = `translate(${old.left - now.left}px, ${old.top - now.top}px)`;
    cell.animate([{ transform }, { transform: "none" }], { duration: 220, easing: "cubic-bezier(.2, .8, .2, 1)" });
  }
}

/** Show the importance of the layers. The elements stay, so that a drag is not interrupted. */
export function showImportance() {
  for (const cell of find(".cell")) {
    const layer = Number(cell.dataset.layer);
    const known = app.layers.get(layer);
    const source = known ? `, ${plural(known.documents, "document")}, ${plural(known.tokens, "token")}` : "";
    cell.title = `layer ${layer}: ${describe(layer)}${source}`;
    cell.className = `cell ${!known ? "unknown" : known.low === null ? "" : "measured"}`;
    if (!known) continue;
    const { delta, low, high } = known;
    const place = scale(delta);
    const stop = Math.min(3, Math.floor(place * 4));
    const values = { level: `${100 * place}%`, low: `${100 * scale(low ?? delta)}%`, high: `${100 * scale(high ?? delta)}%`,
      tone: `color-mix(in oklab, var(--c${stop}), var(--c${stop + 1}) ${100 * (place * 4 - stop)}%)`,
      on: `var(--on-${["low", "mid", "high"][(place > 0.44) + (place > 0.66)]})` };
    for (const [name, value] of Object.entries(values)) cell.style.setProperty(`--${name}`, value);
    const digits = Math.abs(delta) < 0.995 ? 2 : 1;
    cell.querySelector("small").textContent = (delta < 0 ? "−" : "+") + Math.abs(delta).toFixed(digits);
  }
  find(".item").forEach((block, position) => {
    const item = items[position];
    const importance = isGroup(item) ? item.stage.kind : describe(item.layers[0]);
    block.setAttribute("aria-label", `${nameOf(item)}, ${importance}, ${item.stage ? "in the plan" : "skipped"}`);
  });
  for (const value of [0.1, 1]) at("strip").style.setProperty(`--line${value * 10}`, `${100 * scale(value)}%`);
  const marks = [0, 0.1, 1, 10].filter((value) => !value || scale(value) < 1).map((value) => el("span", {}, value));
  for (const mark of marks) mark.style.left = `${100 * scale(Number(mark.textContent))}%`;
  document.querySelector(".scale").replaceChildren(...marks);
}

function setFocus(position, isFocused = true) {
  focus = Math.max(0, Math.min(items.length - 1, position));
  find(".item").forEach((block, index) => (block.tabIndex = index === focus ? 0 : -1));
  if (isFocused) find(".item")[focus].focus();
}

function select(anchor, end = anchor) {
  const last = app.plan.stages.length - 1;
  selection = anchor === null ? null : { anchor: Math.min(anchor, last), end: Math.min(end, last) };
  showSelection();
}

function showSelection() {
  const [first, last] = selection ? range() : [1, 0];
  find(".item").forEach((block, position) => {
    const { stage, index } = items[position];
    block.classList.toggle("selected", stage !== null && index >= first && index <= last);
  });
  if (!selection) return at("tools").replaceChildren(el("span", { class: "muted" }, HINT));
  const texts = selected();
  const { sublayers, types } = app.server;
  const offers = Object.entries(EDITS).filter(([, { least = 1, isWrapped, isSublayer }]) =>
    texts.length >= least && (!isWrapped || texts.some((text) => /[([*]/.test(text))) && (!isSublayer || sublayers));
  const tools = offers.map(([text, { work, title }]) => button(text, () => changeSelection(work, text), title));
  const choice = el("select", { "aria-label": "Quantize" }, ...["quantize", ...types].map((each) => el("option", {}, each)));
  choice.onchange = () => changeSelection(quantize(choice.value), `quantize to ${choice.value}`);
  if (types.length) tools.push(choice);
  const words = texts.length === 1 ? texts[0] : `${texts[0]} … ${texts.at(-1)}`;
  const clear = button("✕", () => select(null), "Clear the selection (Escape)");
  at("tools").replaceChildren(el("code", {}, words), ...tools, clear);
  if (!gesture) say(`Selected: ${texts.join(" ")}.`);
}

function changeSelection(work, name) {
  const [[first], texts] = [range(), selected()];
  const changed = work(texts);
  selection = changed.length ? { anchor: first, end: first + changed.length - 1 } : null;
  edit((all) => all.toSpliced(first, texts.length, ...changed), `${name} ${texts.join(" ")}.`);
}

const skip = (item) => edit((texts) => texts.toSpliced(item.index, 1), `${nameOf(item)} skipped.`);

/** Skip a layer or restore it; select a group or block. */
function toggle(item) {
  if (isGroup(item)) select(item.index);
  else if (item.stage) skip(item);
  else edit((texts) => texts.toSpliced(item.index, 0, `${item.layers[0]}`), `Layer ${item.layers[0]} restored.`);
}

/** Move an item so that `slot` other stages are before it. */
function move(item, slot) {
  const { stage, index, layers } = item;
  if (slot < 0 || slot > app.plan.stages.length - (stage ? 1 : 0) || (stage && slot === index)) return;
  const place = (texts) => (stage ? texts.toSpliced(index, 1) : texts).toSpliced(slot, 0, stage?.text ?? `${layers[0]}`);
  edit(place, `${nameOf(item)} moved to place ${slot + 1}.`);
}

/** Return the block at a point or nearest to it, except for one. */
function nearest({ clientX: x, clientY: y }, except) {
  const away = ({ box: { left, right, top, bottom } }) =>
    Math.max(left - x, 0, x - right) + 9 * Math.max(top - y, 0, y - bottom);
  const all = find(".item").map((block, position) => ({ position, box: block.getBoundingClientRect() }));
  const others = all.filter(({ position }) => position !== except).sort((one, other) => away(one) - away(other));
  const { position, box } = others[0] ?? all[0];
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
  const { index } = items[position];
  select(event.shiftKey ? (selection?.anchor ?? items[focus].index) : index, index);
}

function drag(event) {
  if (!gesture || !event.isPrimary) return;
  if (gesture.mode === "range") return select(selection.anchor, items[nearest(event).position].index);
  const [right, down] = [event.clientX - gesture.x, event.clientY - gesture.y];
  if (gesture.mode === "press" && Math.hypot(right, down) < DRAG) return;
  if (gesture.mode === "press") at("strip").setPointerCapture(event.pointerId);
  gesture.mode = "move";
  const dragged = find(".item")[gesture.position];
  dragged.classList.add("dragged");
  dragged.style.translate = `${right}px ${down}px`;
  const { position, box, isRight } = nearest(event, gesture.position);
  const before = items.slice(0, position + (isRight ? 1 : 0));
  gesture.slot = before.filter(({ stage }, index) => stage && index !== gesture.position).length;
  const frame = at("strip").getBoundingClientRect();
  const place = { left: (isRight ? box.right : box.left) - frame.left, top: box.top - frame.top, height: box.height };
  for (const [name, value] of Object.entries(place)) at("slot").style[name] = `${value}px`;
  at("slot").hidden = false;
}

function release(event) {
  if (!gesture || !event.isPrimary) return;
  const { mode, position, slot } = gesture;
  gesture = null;
  at("slot").hidden = true;
  find(".item")[position].classList.remove("dragged");
  find(".item")[position].style.translate = "";
  if (event.type === "pointercancel") return;
  setFocus(position, mode !== "range");
  if (mode === "move") move(items[position], slot);
  else if (mode === "press") toggle(items[position]);
  else showSelection();
}

function pressKey(event) {
  const item = items[focus];
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  if (event.key === "Escape") select(null);
  else if (event.key === "Home" || event.key === "End") setFocus(event.key === "Home" ? 0 : items.length - 1);
  else if ((event.key === "Delete" || event.key === "Backspace") && selection) changeSelection(EDITS.skip.work, "skip");
  else if ((event.key === "Delete" || event.key === "Backspace") && item.stage) skip(item);
  else if (!step || event.ctrlKey || event.metaKey) return;
  else if (event.altKey) {
    move(item, item.index + (item.stage || step < 0 ? step : 0));
    focus = Math.max(0, Math.min(items.length - 1, focus + step));
  } else {
    const anchor = selection?.anchor ?? item.index;
    setFocus(focus + step);
    if (event.shiftKey) select(anchor, items[focus].index);
  }
  event.preventDefault();
}

export function startStrip() {
  const handlers = { pointerdown: press, pointermove: drag, pointerup: release, pointercancel: release, keydown: pressKey,
    focusin: ({ target }) => setFocus(Number(target.dataset.position), false),
    click: ({ detail }) => detail || toggle(items[focus]) }; // a click by pointer has a detail; `release` handles it
  for (const [name, handler] of Object.entries(handlers)) at("strip").addEventListener(name, handler);
  on("plan", render);
}
