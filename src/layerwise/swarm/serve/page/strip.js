/** The strip: one block for each stage of the plan, and a ghost for each skipped layer. */

import { app, at, el, interval, on, say, short, signed } from "./dom.js";
import { edit } from "./plan.js";
import { EDITS, layOut, quantize } from "./stages.js";

const DRAG = 6; // pixels before a press becomes a drag
const KNEE = 0.02; // nats/token up to which the scale is nearly linear

let items = [];
let focus = 0; // index of the item in the tab order
let selection = null; // { anchor, end } as indexes of stages
let gesture = null;

const strip = () => at("strip");
const range = () => selection && [Math.min(selection.anchor, selection.end), Math.max(selection.anchor, selection.end)];
const name = (item) => (item.stage && item.stage.kind !== "layer" ? item.stage.text : `layer ${item.stage?.text ?? item.layers[0]}`);
const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** Height and color of a loss increase between 0 and 1: linear up to the knee, then logarithmic. */
function scale(delta) {
  const most = Math.max(1, ...[...app.layers.values()].map((each) => each.high ?? each.delta));
  return Math.min(1, Math.log1p(Math.max(0, delta) / KNEE) / Math.log1p(most / KNEE));
}

function color(place) {
  const stop = Math.min(3, Math.floor(place * 4));
  return `color-mix(in oklab, var(--c${stop}), var(--c${stop + 1}) ${Math.round((place * 4 - stop) * 100)}%)`;
}

const describe = (layer) => {
  const known = app.layers.get(layer);
  return known ? `loss increase when skipped ${interval(known)} nats/token` : "not measured yet";
};

function label(item) {
  if (item.stage && item.stage.kind !== "layer") return `${item.stage.kind} ${item.stage.text}, press Enter to select`;
  return `${name(item)}, ${describe(item.layers[0])}, ${item.stage ? "in the plan" : "skipped"}`;
}

function cell(layer, text, note) {
  const gauge = el("span", { class: "gauge" }, el("i", { class: "bar" }), el("i", { class: "whisker" }));
  const block = el("span", { class: "block" }, el("b", {}, text), el("small", {}));
  if (note) block.append(el("em", {}, note));
  return el("span", { class: "cell", "data-layer": layer }, gauge, block);
}

function paint(made) {
  const layer = Number(made.dataset.layer);
  const known = app.layers.get(layer);
  made.classList.toggle("unknown", !known);
  made.title = `layer ${layer}: ${describe(layer)}${known ? `, ${known.documents} documents` : ""}`;
  if (!known) return;
  const place = scale(known.delta);
  made.style.setProperty("--tone", color(place));
  made.style.setProperty("--on", place > 0.5 ? "var(--on-high)" : "var(--on-low)");
  made.style.setProperty("--level", `${100 * place}%`);
  const hasInterval = known.low !== null && known.low !== undefined;
  made.classList.toggle("measured", hasInterval);
  made.style.setProperty("--low", `${100 * scale(hasInterval ? known.low : known.delta)}%`);
  made.style.setProperty("--high", `${100 * scale(hasInterval ? known.high : known.delta)}%`);
  made.querySelector("small").textContent = short(known.delta);
}

function build(item, position) {
  const { stage, layers } = item;
  const isGroup = stage && stage.kind !== "layer";
  const notes = stage ? [stage.sublayer, stage.source, stage.times > 1 && !isGroup ? `×${stage.times}` : ""] : ["skipped"];
  const note = notes.filter(Boolean).join(" ");
  const kind = isGroup ? "bracket" : stage ? "" : "ghost";
  const button = el("button", { class: `item ${kind}`, "data-position": position, type: "button" });
  if (isGroup) button.append(el("code", { class: "caption" }, stage.text));
  button.append(el("span", { class: "cells" }, ...layers.map((layer) => cell(layer, layer, isGroup ? "" : note))));
  return button;
}

/** Draw the strip again; blocks that moved slide to their new place. */
function render() {
  const before = new Map();
  for (const each of strip().querySelectorAll(".cell")) before.set(each.dataset.layer, each.getBoundingClientRect());
  const hadFocus = strip().contains(document.activeElement);
  items = layOut(app.plan);
  focus = Math.min(focus, items.length - 1);
  if (selection && Math.max(selection.anchor, selection.end) >= app.plan.stages.length) selection = null;
  strip().replaceChildren(...items.map(build), el("span", { id: "slot", hidden: true }));
  update();
  showSelection();
  if (hadFocus) focusItem(focus);
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const each of strip().querySelectorAll(".cell")) {
    const old = before.get(each.dataset.layer);
    const now = each.getBoundingClientRect();
    if (!old || (old.left === now.left && old.top === now.top)) continue;
    const from = `translate(${old.left - now.left}px, ${old.top - now.top}px)`;
    each.animate([{ transform: from }, { transform: "none" }], { duration: 220, easing: "cubic-bezier(.2, .8, .2, 1)" });
  }
}

/** Show the importance of the layers; elements stay, so that a drag goes on. */
export function update() {
  for (const each of strip().querySelectorAll(".cell")) paint(each);
  for (const each of strip().querySelectorAll(".item")) each.setAttribute("aria-label", label(items[each.dataset.position]));
  for (const value of [0.1, 1]) strip().style.setProperty(`--line-${value * 10}`, `${100 * scale(value)}%`);
  const marks = [0, 0.1, 1, ...[10].filter((value) => scale(value) < 1)].map((value) => {
    const mark = el("span", {}, value);
    mark.style.left = `${100 * scale(value)}%`;
    return mark;
  });
  at("legend").replaceChildren(
    el("span", {}, "loss increase when skipped"),
    el("span", { class: "scale" }, ...marks), el("span", {}, "nats/token"),
    el("span", { class: "sample whisker-sample" }), el("span", {}, "95% interval"),
    el("span", { class: "sample unknown-sample" }), el("span", {}, "not measured yet"),
    el("span", { class: "sample ghost-sample" }), el("span", {}, "skipped"),
  );
}

function focusItem(position) {
  focus = Math.max(0, Math.min(items.length - 1, position));
  for (const each of strip().querySelectorAll(".item")) each.tabIndex = Number(each.dataset.position) === focus ? 0 : -1;
  strip().querySelector(`[data-position="${focus}"]`).focus();
}

function toggle(item) {
  if (!item.stage) edit((texts) => texts.toSpliced(item.index, 0, `${item.layers[0]}`), `Layer ${item.layers[0]} restored.`);
  else if (item.stage.kind === "layer") edit((texts) => texts.toSpliced(item.index, 1), `${capital(name(item))} skipped.`);
  else select(item.index, item.index);
}

function move(item, index) {
  const target = item.stage && index > item.index ? index - 1 : index;
  if (item.stage && target === item.index) return;
  const text = item.stage?.text ?? `${item.layers[0]}`;
  edit((texts) => (item.stage ? texts.toSpliced(item.index, 1) : texts).toSpliced(target, 0, text), `${capital(name(item))} moved.`);
}

function select(anchor, end) {
  selection = anchor === null ? null : { anchor, end };
  showSelection();
}

function showSelection() {
  const chosen = range();
  for (const each of strip().querySelectorAll(".item")) {
    const item = items[each.dataset.position];
    const isSelected = chosen && item.stage && item.index >= chosen[0] && item.index <= chosen[1];
    each.classList.toggle("selected", Boolean(isSelected));
    each.tabIndex = Number(each.dataset.position) === focus ? 0 : -1;
  }
  if (!chosen) {
    const hint = "Click a layer to skip it. Drag to move it. Drag above the layers, or shift-click, to select several.";
    return at("tools").replaceChildren(el("span", { class: "muted" }, hint));
  }
  const texts = app.plan.stages.slice(chosen[0], chosen[1] + 1).map((stage) => stage.text);
  const isWrapped = texts.some((text) => /[([*]/.test(text));
  const isOffered = (each) => texts.length >= (each.least ?? 1) && (!each.wrapped || isWrapped)
    && (!each.sublayer || app.server.sublayers);
  const buttons = Object.entries(EDITS).filter(([, each]) => isOffered(each))
    .map(([text, each]) => el("button", { type: "button", title: each.title, onclick: () => change(each.change, text) }, text));
  const types = el("select", { "aria-label": "Quantize", onchange: () => change(quantize(types.value), "quantize") },
    el("option", { value: "" }, "quantize"), ...app.server.types.map((each) => el("option", {}, each)));
  const words = texts.length === 1 ? texts[0] : `${texts[0]} … ${texts.at(-1)}`;
  at("tools").replaceChildren(el("strong", {}, words), ...buttons, app.server.types.length ? types : "",
    el("button", { type: "button", class: "quiet", title: "Clear the selection (Escape)", onclick: () => select(null) }, "×"));
  if (!gesture) say(`Selected: ${texts.join(" ")}.`);
}

function change(work, words) {
  const [first, last] = range();
  const texts = app.plan.stages.slice(first, last + 1).map((stage) => stage.text);
  const now = work(texts);
  selection = now.length ? { anchor: first, end: first + now.length - 1 } : null;
  edit((all) => all.toSpliced(first, texts.length, ...now), `${capital(words)}: ${texts.join(" ")}.`);
}

/** Find the item under or nearest to a point, and whether the point is in its right half. */
function nearest(x, y) {
  let best = null;
  for (const each of strip().querySelectorAll(".item")) {
    const box = each.getBoundingClientRect();
    const away = Math.max(box.left - x, 0, x - box.right) + 4 * Math.max(box.top - y, 0, y - box.bottom);
    if (!best || away < best.away) best = { away, box, position: Number(each.dataset.position), isRight: x > (box.left + box.right) / 2 };
  }
  return best;
}

function press(event) {
  if (event.button !== 0) return;
  const found = nearest(event.clientX, event.clientY);
  const isBlock = event.target.closest(".block, .caption");
  const mode = isBlock && !event.shiftKey ? "press" : "range";
  gesture = { mode, x: event.clientX, y: event.clientY, position: found.position, moved: false, id: event.pointerId };
  if (mode === "press") return;
  event.preventDefault();
  strip().setPointerCapture(event.pointerId);
  const { index } = items[found.position];
  select(event.shiftKey && selection ? selection.anchor : event.shiftKey ? (items[focus]?.index ?? index) : index, index);
}

function drag(event) {
  if (!gesture || event.pointerId !== gesture.id) return;
  const [right, down] = [event.clientX - gesture.x, event.clientY - gesture.y];
  const found = nearest(event.clientX, event.clientY);
  if (gesture.mode === "range") return select(selection?.anchor ?? 0, Math.min(items[found.position].index, app.plan.stages.length - 1));
  if (!gesture.moved && Math.hypot(right, down) < DRAG) return;
  const dragged = strip().querySelector(`[data-position="${gesture.position}"]`);
  if (!gesture.moved) strip().setPointerCapture(event.pointerId);
  gesture.moved = true;
  dragged.classList.add("dragged");
  dragged.style.translate = `${right}px ${down}px`;
  const box = strip().getBoundingClientRect();
  const others = nearestOther(event);
  gesture.slot = others.slot;
  at("slot").hidden = false;
  at("slot").style.left = `${others.x - box.left}px`;
  at("slot").style.top = `${others.box.top - box.top}px`;
  at("slot").style.height = `${others.box.height}px`;
}

/** Find the place between two items at which the dragged one would be dropped. */
function nearestOther(event) {
  const dragged = strip().querySelector(`[data-position="${gesture.position}"]`);
  dragged.style.translate = "";
  const found = nearest(event.clientX, event.clientY);
  dragged.style.translate = `${event.clientX - gesture.x}px ${event.clientY - gesture.y}px`;
  const position = found.position + (found.isRight ? 1 : 0);
  const slot = items.slice(0, position).filter((item) => item.stage).length;
  return { slot, box: found.box, x: found.isRight ? found.box.right : found.box.left };
}

function release(event) {
  if (!gesture || event.pointerId !== gesture.id) return;
  const { mode, moved, position, slot } = gesture;
  gesture = null;
  at("slot").hidden = true;
  for (const each of strip().querySelectorAll(".dragged")) {
    each.classList.remove("dragged");
    each.style.translate = "";
  }
  if (event.type === "pointercancel") return;
  focus = position;
  if (mode === "range") return showSelection();
  if (moved) move(items[position], slot);
  else toggle(items[position]);
}

function press_key(event) {
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  const item = items[focus];
  if (event.key === "Escape") select(null);
  else if (event.key === "Home" || event.key === "End") focusItem(event.key === "Home" ? 0 : items.length - 1);
  else if (event.key === "Delete" || event.key === "Backspace") {
    if (selection) change(EDITS.skip.change, "skip");
    else if (item.stage) edit((texts) => texts.toSpliced(item.index, 1), `${capital(name(item))} skipped.`);
  } else if (step && event.altKey) {
    const target = item.index + (step > 0 && item.stage ? 2 : step > 0 ? 1 : -1);
    if (target < 0 || target > app.plan.stages.length) return;
    focus = Math.max(0, Math.min(items.length - 1, focus + step));
    move(item, target);
  } else if (step && event.shiftKey) {
    const from = selection?.anchor ?? item.index;
    focusItem(focus + step);
    select(from, Math.min(items[focus].index, app.plan.stages.length - 1));
  } else if (step) focusItem(focus + step);
  else return;
  event.preventDefault();
}

export function startStrip() {
  strip().addEventListener("pointerdown", press);
  strip().addEventListener("pointermove", drag);
  strip().addEventListener("pointerup", release);
  strip().addEventListener("pointercancel", release);
  strip().addEventListener("keydown", press_key);
  strip().addEventListener("click", (event) => {
    const pressed = event.target.closest(".item"); // the pointer's own clicks are handled by `release`
    if (!pressed || event.detail) return;
    focus = Number(pressed.dataset.position);
    toggle(items[focus]);
  });
  on("plan", render);
}
