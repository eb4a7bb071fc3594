/** The strip: one block for each stage of the plan, and a ghost for each skipped layer. */

import { app, at, button, debounce, el, interval, muted, on, plural, say } from "./dom.js";
import { edit } from "./plan.js";
import { EDITS, layOut, quantize } from "./stages.js";

const DRAG = 6; // pixels after which a press is a drag
const WIDTH = 37; // pixels that a block needs at least
const MIN_COLUMNS = 8;
const [KNEE, TOP] = [0.02, 10]; // nats/token: the scale is nearly linear up to the knee, then logarithmic
const HINT = "Click a layer to skip it. Drag it to move it. Drag above the layers, or shift-click, to select several.";

let items = []; // { stage or null for a skipped layer, layers, index of the stage }
let focus = 0; // position of the item in the tab order
let selection = null; // { anchor, end }, indexes of stages
let gesture = null; // { mode: "press", "move" or "range", position, x, y, slot }

const find = (selector) => [...at("strip").querySelectorAll(selector)];
const clamp = (value, most) => Math.max(0, Math.min(value, most));
const scale = (delta) => Math.min(1, Math.log1p(Math.max(0, delta) / KNEE) / Math.log1p(TOP / KNEE));
const range = () => [Math.min(selection.anchor, selection.end), Math.max(selection.anchor, selection.end)];
const selected = () => app.plan.stages.slice(range()[0], range()[1] + 1).map(({ text }) => text);
const isGroup = ({ stage }) => stage !== null && stage.kind !== "layer";
const nameOf = (item) => (isGroup(item) ? item.stage.text : `Layer ${item.stage?.text ?? item.layers[0]}`);

const describe = (known) => (known ? `loss increase when skipped ${interval(known)} nats/token` : "not measured yet");

function buildItem(item, position) {
  const { stage, layers } = item;
  const times = stage?.times > 1 ? `×${stage.times}` : "";
  const note = [stage?.sublayer, stage?.source, times].filter(Boolean).join(" ");
  const cells = layers.map((layer) => el("span", { class: "cell", "data-layer": layer },
    el("span", { class: "gauge" }, el("i", { class: "bar" }), el("i", { class: "whisker" })),
    el("span", { class: "block" }, el("b", {}, layer), el("small"), el("em", {}, isGroup(item) ? "" : note))));
  const kind = isGroup(item) ? "bracket" : stage ? "" : "ghost";
  const made = el("button", { type: "button", class: `item ${kind}`, "data-position": position });
  made.append(...(isGroup(item) ? [el("code", {}, stage.text)] : []), el("span", { class: "cells" }, ...cells));
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
    cell.title = `layer ${layer}: ${describe(known)}${source}`;
    cell.className = `cell ${!known ? "unknown" : known.low === null ? "" : "measured"}`;
    if (!known) continue;
    const { delta, low, high } = known;
    const place = scale(delta);
    const stop = Math.min(3, Math.floor(place * 4));
    const percent = (value) => `${100 * scale(value)}%`;
    const values = { level: percent(delta), low: percent(low ?? delta), high: percent(high ?? delta),
      tone: `color-mix(in oklab, var(--c${stop}), var(--c${stop + 1}) ${100 * (place * 4 - stop)}%)`,
      on: `var(--on-${["low", "mid", "high"][(place > 0.45) + (place > 0.66)]})` };
    for (const [name, value] of Object.entries(values)) cell.style.setProperty(`--${name}`, value);
    const text = (delta < 0 ? "−" : "+") + Math.abs(delta).toFixed(Math.abs(delta) < 0.995 ? 2 : 1);
    cell.querySelector("small").textContent = text;
  }
  find(".item").forEach((block, position) => {
    const item = items[position];
    const importance = isGroup(item) ? item.stage.kind : describe(app.layers.get(item.layers[0]));
    block.setAttribute("aria-label", `${nameOf(item)}, ${importance}, ${item.stage ? "in the plan" : "skipped"}`);
  });
}

function setFocus(position, isFocused = true) {
  focus = clamp(position, items.length - 1);
  find(".item").forEach((block, index) => (block.tabIndex = index === focus ? 0 : -1));
  if (isFocused) find(".item")[focus].focus();
}

function select(anchor, end = anchor) {
  const last = app.plan.stages.length - 1;
  selection = anchor === null ? null : { anchor: clamp(anchor, last), end: clamp(end, last) };
  showSelection();
}

function showSelection() {
  const [first, last] = selection ? range() : [1, 0];
  const isSelected = ({ stage, index }) => stage !== null && index >= first && index <= last;
  find(".item").forEach((block, position) => block.classList.toggle("selected", isSelected(items[position])));
  if (!selection) return at("tools").replaceChildren(muted(HINT));
  const texts = selected();
  const isWrapped = texts.some((text) => /[([*]/.test(text));
  const isOffered = ([, { least = 1, wrapped, sublayers }]) =>
    texts.length >= least && (isWrapped || !wrapped) && (app.server.sublayers || !sublayers);
  const tools = Object.entries(EDITS).filter(isOffered).map(([text, { work, title }]) =>
    button(text, () => changeSelection(work, text), title));
  const types = ["quantize", ...app.server.types].map((type) => el("option", {}, type));
  const onchange = ({ target }) => changeSelection(quantize(target.value), `quantize to ${target.value}`);
  if (types.length > 1) tools.push(el("select", { "aria-label": "Quantize", onchange }, ...types));
  const words = texts.length === 1 ? texts[0] : `${texts[0]} … ${texts.at(-1)}`;
  const clear = button("✕", () => select(null), "Clear the selection (Escape)");
  at("tools").replaceChildren(el("code", {}, words), ...tools, clear);
  if (!gesture) say(`Selected: ${texts.join(" ")}.`);
}

async function changeSelection(work, name) {
  const [[first], texts] = [range(), selected()];
  const rest = app.plan.stages.length - texts.length;
  const isHere = (all) => texts.every((text, index) => all[first + index] === text); // no earlier edit moved them
  const change = (all) => (isHere(all) ? all.toSpliced(first, texts.length, ...work(texts)) : all);
  await edit(change, `${name} ${texts.join(" ")}.`);
  const size = app.plan.stages.length - rest;
  select(size > 0 ? first : null, first + size - 1);
  setFocus(items.findIndex(({ index }) => index === first));
}

/** Edit an item as it is when its turn comes: an earlier edit may have moved, skipped or restored it. */
function editItem(item, work, message) {
  const [layer] = item.layers;
  const texts = [item.stage?.text ?? `${layer}`, undefined];
  const isSame = ({ stage, layers }) => layers[0] === layer && texts.includes(stage?.text);
  const distance = ({ index }) => Math.abs(index - item.index);
  return edit((all) => {
    const [found] = layOut(app.plan).filter(isSame).sort((one, other) => distance(one) - distance(other));
    return found ? work(all, found) : all;
  }, message);
}

const remove = (texts, { stage, index }) => (stage ? texts.toSpliced(index, 1) : texts);
const skip = (item) => editItem(item, remove, `${nameOf(item)} skipped.`);

/** Skip a layer or restore it; select a group or block. */
function toggle(item) {
  if (isGroup(item)) return select(item.index);
  const restore = (texts, { index }) => texts.toSpliced(index, 0, `${item.layers[0]}`);
  const change = (texts, found) => (found.stage ? remove : restore)(texts, found);
  return editItem(item, change, `${nameOf(item)} ${item.stage ? "skipped" : "restored"}.`);
}

/** Move an item so that `slot` other stages are before it. */
function move(item, slot) {
  const { stage, index, layers } = item;
  if (slot < 0 || slot > app.plan.stages.length - (stage ? 1 : 0) || (stage && slot === index)) return;
  const change = (texts, found) => remove(texts, found).toSpliced(slot, 0, stage?.text ?? `${layers[0]}`);
  editItem(item, change, `${nameOf(item)} moved to place ${slot + 1}.`);
}

const blockAt = ({ clientX, clientY }) => document.elementFromPoint(clientX, clientY)?.closest("#strip .item");

function press(event) {
  const block = event.target.closest(".item");
  if (event.button !== 0 || !event.isPrimary || !block) return;
  const position = Number(block.dataset.position);
  const mode = event.target.closest(".block, code") && !event.shiftKey ? "press" : "range";
  gesture = { mode, position, x: event.clientX, y: event.clientY };
  if (mode === "press") return;
  event.preventDefault();
  at("strip").setPointerCapture(event.pointerId);
  const { index } = items[position];
  select(event.shiftKey ? (selection?.anchor ?? items[focus].index) : index, index);
}

function drag(event) {
  if (!gesture || !event.isPrimary) return;
  const block = blockAt(event);
  if (gesture.mode === "range") return block && select(selection.anchor, items[block.dataset.position].index);
  const [right, down] = [event.clientX - gesture.x, event.clientY - gesture.y];
  if (gesture.mode === "press" && Math.hypot(right, down) < DRAG) return;
  if (gesture.mode === "press") at("strip").setPointerCapture(event.pointerId);
  gesture.mode = "move";
  const dragged = find(".item")[gesture.position];
  dragged.classList.add("dragged"); // without pointer events, so that the block below it is found
  dragged.style.translate = `${right}px ${down}px`;
  if (!block || block === dragged) return;
  const [box, frame] = [block.getBoundingClientRect(), at("strip").getBoundingClientRect()];
  const isRight = event.clientX > (box.left + box.right) / 2;
  const before = items.slice(0, Number(block.dataset.position) + (isRight ? 1 : 0));
  gesture.slot = before.filter(({ stage }, position) => stage && position !== gesture.position).length;
  const place = { left: (isRight ? box.right : box.left) - frame.left, top: box.top - frame.top, height: box.height };
  for (const [name, value] of Object.entries(place)) at("slot").style[name] = `${value}px`;
  at("slot").hidden = false;
}

function release(event) {
  if (!gesture || !event.isPrimary) return;
  const { mode, position, slot } = gesture;
  gesture = null;
  at("slot").hidden = true;
  const block = find(".item")[position];
  block.classList.remove("dragged");
  block.style.translate = "";
  if (event.type === "pointercancel") return;
  setFocus(position, mode !== "range");
  if (mode === "range") showSelection();
  else if (mode === "press") toggle(items[position]);
  else if (slot !== undefined) move(items[position], slot);
}

function pressKey(event) {
  const item = items[focus];
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  const edge = { Home: 0, End: items.length - 1 }[event.key];
  const isDelete = event.key === "Delete" || event.key === "Backspace";
  if (event.key === "Escape") select(null);
  else if (edge !== undefined) setFocus(edge);
  else if (isDelete && selection) changeSelection(EDITS.skip.work, "skip");
  else if (isDelete && item.stage) skip(item);
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
  const handlers = { pointerdown: press, pointermove: drag, pointerup: release, pointercancel: release,
    keydown: pressKey, focusin: ({ target }) => setFocus(Number(target.dataset.position), false),
    click: ({ target, detail }) => { // a click by pointer has a detail, and `release` handles it
      const block = target.closest(".item");
      if (block && !detail) toggle(items[block.dataset.position]);
    } };
  for (const [name, handler] of Object.entries(handlers)) at("strip").addEventListener(name, handler);
  on("plan", render);
  window.addEventListener("resize", debounce(150, () => app.plan && render()));
}
