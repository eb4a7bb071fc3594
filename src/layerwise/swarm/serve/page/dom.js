/** State, elements, numbers and events that the panels share. Data is only ever set as text. */

/** The server's description, the current plan, and the importance of each measured layer. */
export const app = { server: null, plan: null, layers: new Map() };
export const ranked = () => [...app.layers.values()].sort((one, other) => one.delta - other.delta);
export const numbers = (size) => [...Array(size).keys()];
export const without = (...layers) => numbers(app.server.depth).filter((each) => !layers.includes(each)).join(" ");
export const isIdentity = () => app.plan.stages.map(({ text }) => text).join(" ") === without();

const bus = new EventTarget();
export const on = (name, listener) => bus.addEventListener(name, listener);
export const emit = (name) => bus.dispatchEvent(new Event(name));

export const at = (id) => document.getElementById(id);
export const listen = (id, name, work) => at(id).addEventListener(name, work);
export const write = (id, text) => (at(id).textContent = text);
export const say = (text) => write("live", text);
export const showError = (id, error) => (at(id).hidden = !write(id, error?.message ?? ""));

/** Make an element. Attributes whose name begins with "on" are listeners; undefined ones are left out. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
export const button = (text, onclick, title) => el("button", { type: "button", onclick, title }, text);
export const muted = (text, tag = "span") => el(tag, { class: "muted" }, text);

/** Return a function that runs `work` once it has not been called for a while. */
export function debounce(milliseconds, work) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, milliseconds);
  };
}

export const count = (value) => value.toLocaleString("en-US");
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** Format a loss in nats/token: 7.20, 0.21, 0.053, and with its sign and interval. */
export const nats = (value) => value.toFixed(Math.abs(value) < 0.0995 ? 3 : 2).replace("-", "−");
export const signed = (value) => (value < 0 ? "" : "+") + nats(value);
export const interval = ({ delta, low, high }) =>
  signed(delta) + (low === null ? "" : ` [${nats(low)}, ${nats(high)}]`);

/** Format a large number (1.2 M, 530 MB) and a relative change (−8.3%, or nothing). */
export function quantity(value, unit = "") {
  const power = Math.min(3, Math.floor(Math.log10(Math.max(1, value)) / 3));
  const scaled = value / 1000 ** power;
  return `${scaled.toFixed(power && scaled < 100 ? 1 : 0)} ${["", "k", "M", "G"][power]}${unit}`.trim();
}
const PERCENT = { style: "percent", signDisplay: "exceptZero", maximumFractionDigits: 1 };
export const change = (before, now) =>
  before === now ? "" : (now / before - 1).toLocaleString("en-US", PERCENT).replace("-", "−");

export async function copy(text, pressed) {
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  pressed.dataset.label ??= pressed.textContent;
  pressed.textContent = isCopied ? "copied" : "not allowed";
  setTimeout(() => (pressed.textContent = pressed.dataset.label), 1200);
}
