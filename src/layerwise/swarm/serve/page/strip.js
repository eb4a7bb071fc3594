/** The strip: one block for each stage of the plan, and a ghost for each skipped layer. */

import { app, at, button, debounce, el, interval, listen, muted, on, plural, say } from "./dom.js";
import { edit } from "./plan.js";
import { EDITS, layOut, quantize } from "./stages.js";

const DRAG = 6; // pixels after which a press is a drag
const WIDTH = 37; // pixels that a block needs at least
const AXIS = 24; // pixels to the left of the blocks
const MIN_COLUMNS = 8;
const [KNEE, TOP] = [0.02, 10]; // nats/token: the scale is nearly linear up to the knee, then logarithmic
const HINT = "Click a layer to skip it. Drag it to move it. Drag above the layers, or shift-click, to select several.";

let items = []; // { stage or null for a skipped layer, layers, index of the stage, position, block }
let focus = 0; // position of the item in the tab order
let selection = null; // { anchor, end }, indexes of stages
let gesture = null; // { mode: "press", "move" or "range", item, x, y, slot }

const clamp = (value, most) => Math.max(0, Math.min(value, most));
const scale = (delta) => Math.min(1, Math.log1p(Math.max(0, delta) / KNEE) / Math.log1p(TOP / KNEE));
const range = () => [Math.min(selection.anchor, selection.end), Math.max(selection.anchor, selection.end)];
const isGroup = ({ stage }) => stage !== null && stage.kind !== "layer";
const nameOf = (item) => (isGroup(item) ? item.stage.text : `Layer ${item.stage?.text ?? item.layers[0]}`);
const itemOf = (element) => items.find(({ block }) => block === element?.closest("#strip .item"));
const clearDrop = () => items.forEach(({ block }) => delete block.dataset.drop);
const findCells = () => [...at("strip").querySelectorAll(".cell")];
const describe = (known) => (known ? `loss increase when skipped ${interval(known)} nats/token` : "not measured yet");

function buildItem(item) {
  const { stage, layers } = item;
  const note = [stage?.sublayer, stage?.source, stage?.times > 1 && `×${stage.times}`].filter(Boolean).join(" ");
  const cells = layers.map((layer) => el("span", { class: "cell", "data-layer": layer },
    el("span", { class: "gauge" }, el("i", { class: "bar" }), el("i", { class: "whisker" })),
    el("span", { class: "block" }, el("b", {}, layer), el("small"), el("em", {}, isGroup(item) ? "" : note))));
  const block = el("button", { type: "button", class: `item ${isGroup(item) ? "bracket" : stage ? "" : "ghost"}` },
    ...(isGroup(item) ? [el("code", {}, stage.text)] : []), el("span", { class: "cells" }, ...cells));
  block.style.setProperty("--n", layers.length);
  return block;
}

/** Draw the strip again. */
function render() {
  const strip = at("strip");
  const hadFocus = strip.contains(document.activeElement);
  gesture = null;
  items = layOut(app.plan).map((item, position) => ({ ...item, position, block: buildItem(item) }));
  if (selection && range()[1] >= app.plan.stages.length) selection = null;
  const size = items.flatMap(({ layers }) => layers).length;
  const rows = Math.ceil((size * WIDTH) / (strip.clientWidth - AXIS));
  strip.style.setProperty("--columns", Math.max(MIN_COLUMNS, Math.ceil(size / rows)));
  strip.replaceChildren(...items.map(({ block }) => block));
  for (const { block } of items) block.classList.toggle("start", block.offsetLeft === items[0].block.offsetLeft);
  showImportance();
  showSelection();
  setFocus(focus, hadFocus);
}

/** Show the importance of the layers. The elements stay, so that a drag is not interrupted. */
export function showImportance() {
  for (const cell of findCells()) {
    const layer = Number(cell.dataset.layer);
    const known = app.layers.get(layer);
    const source = known ? `, ${plural(known.documents, "document")}, ${plural(known.tokens, "token")}` : "";
    cell.title = `layer ${layer}: ${describe(known)}${source}`;
    cell.className = `cell ${!known ? "unknown" : known.low === null ? "" : "measured"}`;
    if (!known) continue;
    const { delta, low, high } = known;
    const levels = { level: delta, low: low ?? delta, high: high ?? delta };
    for (const [name, value] of Object.entries(levels)) cell.style.setProperty(`--${name}`, `${100 * scale(value)}%`);
    const text = (delta < 0 ? "−" : "+") + Math.abs(delta).toFixed(Math.abs(delta) < 0.995 ? 2 : 1);
    cell.querySelector("small").textContent = text;
  }
  for (const item of items) {
    const importance = isGroup(item) ? item.stage.kind : describe(app.layers.get(item.layers[0]));
    item.block.ariaLabel = `${nameOf(item)}, ${importance}, ${item.stage ? "in the plan" : "skipped"}`;
  }
}

function setFocus(position, isFocused = true) {
  focus = clamp(position, items.length - 1);
  for (const { block } of items) block.tabIndex = block === items[focus].block ? 0 : -1;
  if (isFocused) items[focus].block.focus();
}

export function select(anchor, end = anchor) {
  const last = app.plan.stages.length - 1;
  selection = anchor === null ? null : { anchor: clamp(anchor, last), end: clamp(end, last) };
  showSelection();
}

function showSelection() {
  const [first, last] = selection ? range() : [1, 0];
  const selected = items.filter(({ stage, index }) => stage && index >= first && index <= last);
  for (const item of items) item.block.ariaCurrent = selected.includes(item);
  if (!selection) return at("tools").replaceChildren(muted(HINT));
  const texts = selected.map(({ stage }) => stage.text);
  const isWrapped = texts.some((text) => /[([*]/.test(text));
  const isOffered = ([, { least = 1, wrapped, sublayers }]) =>
    texts.length >= least && (isWrapped || !wrapped) && (app.server.sublayers || !sublayers);
  const tools = Object.entries(EDITS).filter(isOffered).map(([text, { work, title }]) =>
    button(text, () => changeSelection(work, text), title));
  const types = ["quantize", ...app.server.types].map((type) => el("option", {}, type));
  const onchange = ({ target }) => changeSelection(quantize(target.value), `quantize to ${target.value}`);
  if (types.length > 1) tools.push(el("select", { "aria-label": "Quantize", onchange }, ...types));
  const clear = button("clear", () => [select(null), setFocus(focus)], "Clear the selection (Escape)");
  at("tools").replaceChildren(el("code", {}, [...new Set([texts[0], texts.at(-1)])].join(" … ")), ...tools, clear);
  if (!gesture) say(`Selected: ${texts.join(" ")}.`);
}

async function changeSelection(work, name) {
  const [first, last] = range();
  const texts = app.plan.stages.slice(first, last + 1).map(({ text }) => text);
  const rest = app.plan.stages.length - texts.length;
  const isHere = (all) => texts.every((text, index) => all[first + index] === text); // no earlier edit moved them
  const change = (all) => (isHere(all) ? all.toSpliced(first, texts.length, ...work(texts)) : all);
  await edit(change, `${name} ${texts.join(" ")}.`);
  const size = app.plan.stages.length - rest;
  select(size > 0 ? first : null, first + size - 1);
  setFocus(items.findIndex(({ index }) => index === first));
}

/**
 * Move an item so that `slot` other stages are before it; without a slot, skip or restore it.
 * When the turn of the edit comes, earlier ones may have moved, skipped or restored the item.
 */
function editItem({ stage, layers, index }, message, slot) {
  const text = stage?.text ?? `${layers[0]}`;
  const isSame = (item) => item.layers[0] === layers[0] && (!item.stage || item.stage.text === text);
  const distance = (item) => Math.abs(item.index - index);
  return edit((all) => {
    const [found] = items.filter(isSame).sort((one, other) => distance(one) - distance(other));
    if (!found) return all;
    const rest = found.stage ? all.toSpliced(found.index, 1) : all;
    return found.stage && slot === undefined ? rest : rest.toSpliced(slot ?? found.index, 0, text);
  }, message);
}

const toggle = (item) => editItem(item, `${nameOf(item)} ${item.stage ? "skipped" : "restored"}.`);
const activate = (item) => (isGroup(item) ? select(item.index) : toggle(item));

function move(item, slot) {
  const { stage, index } = item;
  if (slot < 0 || slot > app.plan.stages.length - (stage ? 1 : 0) || (stage && slot === index)) return;
  editItem(item, `${nameOf(item)} moved to place ${slot + 1}.`, slot);
}

function press(event) {
  const item = itemOf(event.target);
  if (event.button !== 0 || !event.isPrimary || !item) return;
  const mode = event.target.closest(".block, code") && !event.shiftKey ? "press" : "range";
  gesture = { mode, item, x: event.clientX, y: event.clientY };
  if (mode === "press") return;
  event.preventDefault();
  at("strip").setPointerCapture(event.pointerId);
  select(event.shiftKey ? (selection?.anchor ?? items[focus].index) : item.index, item.index);
}

function drag(event) {
  if (!gesture || !event.isPrimary) return;
  const target = itemOf(document.elementFromPoint(event.clientX, event.clientY));
  if (gesture.mode === "range") return target && select(selection.anchor, target.index);
  const [right, down] = [event.clientX - gesture.x, event.clientY - gesture.y];
  if (gesture.mode === "press" && Math.hypot(right, down) < DRAG) return;
  at("strip").setPointerCapture(event.pointerId);
  gesture.mode = "move";
  const { block, position } = gesture.item;
  block.classList.add("dragged"); // without pointer events, so that the block below it is found
  block.style.translate = `${right}px ${down}px`;
  if (!target) return;
  clearDrop();
  const { left, width } = target.block.getBoundingClientRect();
  const isAfter = event.clientX > left + width / 2;
  target.block.dataset.drop = isAfter ? "after" : "before";
  const before = items.slice(0, target.position + (isAfter ? 1 : 0));
  gesture.slot = before.filter((each) => each.stage && each.position !== position).length;
}

function release(event) {
  if (!gesture || !event.isPrimary) return;
  const { mode, item, slot } = gesture;
  gesture = null;
  item.block.classList.remove("dragged");
  item.block.style.translate = "";
  clearDrop();
  if (event.type === "pointercancel") return;
  setFocus(item.position, mode !== "range");
  if (mode === "range") showSelection();
  else if (mode === "press") activate(item);
  else if (slot !== undefined) move(item, slot);
}

function pressKey(event) {
  const item = items[focus];
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  const edge = { Home: 0, End: items.length - 1 }[event.key];
  const isDelete = event.key === "Delete" || event.key === "Backspace";
  if (event.key === "Escape") select(null);
  else if (edge !== undefined) setFocus(edge);
  else if (isDelete && selection) changeSelection(EDITS.skip.work, "skip");
  else if (isDelete && item.stage) toggle(item);
  else if (!step || event.ctrlKey || event.metaKey) return;
  else if (event.altKey) {
    move(item, item.index + (item.stage || step < 0 ? step : 0));
    focus = clamp(focus + step, items.length - 1);
  } else {
    const anchor = selection?.anchor ?? item.index;
    setFocus(focus + step);
    if (event.shiftKey) select(anchor, items[focus].index);
  }
  event.preventDefault();
}

export function startStrip() {
  const explain = ([name, { title }]) => el("div", {}, el("b", {}, name), `: ${title}`);
  at("edits").replaceChildren(...Object.entries(EDITS).map(explain));
  const handlers = { pointerdown: press, pointermove: drag, pointerup: release, pointercancel: release,
    keydown: pressKey, focusin: ({ target }) => setFocus(itemOf(target).position, false),
    click: ({ target, detail }) => !detail && activate(itemOf(target)) }; // `release` handles clicks by pointer
  for (const [name, handler] of Object.entries(handlers)) listen("strip", name, handler);
  on("plan", render);
  window.addEventListener("resize", debounce(150, () => app.plan && render()));
}
