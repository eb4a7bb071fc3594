/** Elements, numbers and events that all panels share. Data is only ever set as text. */

export const at = (id) => document.getElementById(id);

const SVG = new Set(["svg", "path", "rect", "line", "text", "title"]);

/** Make an element: attributes whose name begins with "on" are listeners, false and null are left out. */
export function el(tag, attributes = {}, ...children) {
  const made = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const bus = new EventTarget();
export const on = (name, listener) => bus.addEventListener(name, listener);
export const emit = (name) => bus.dispatchEvent(new Event(name));

/** State that panels share: the server's description, the current plan, and the importance of each layer. */
export const app = { server: null, plan: null, layers: new Map(), isMeasured: false };

export const say = (text) => (at("live").textContent = text);
export const isIdentity = () => app.plan.plan === app.plan.original.plan;
export const ranked = () => [...app.layers.values()].sort((one, other) => one.delta - other.delta);
export const without = (...layers) => [...Array(app.server.depth).keys()].filter((each) => !layers.includes(each)).join(" ");

export function debounce(milliseconds, work) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

export function showError(id, error) {
  at(id).hidden = !error;
  at(id).textContent = error ? error.message : "";
}

export const count = (value) => value.toLocaleString("en-US");
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
export const minus = (text) => text.replace("-", "−");

/** A loss in nats/token: 7.2, 0.21, 0.053. */
export const nats = (value) => minus(value.toFixed(Math.abs(value) >= 9.95 ? 1 : Math.abs(value) >= 0.0995 ? 2 : 3));
export const signed = (value) => (value >= 0 ? "+" : "") + nats(value);
export const short = (value) => (value >= 0 ? "+" : "") + minus(value.toFixed(Math.abs(value) < 0.995 ? 2 : 1));
export const interval = ({ delta, low, high }) =>
  `${signed(delta)}${low === null || low === undefined ? "" : ` [${nats(low)}, ${nats(high)}]`}`;

export function quantity(value, unit = "") {
  const power = value >= 1e9 ? 3 : value >= 1e6 ? 2 : value >= 1e4 ? 1 : 0;
  const scaled = value / 1000 ** power;
  const digits = power && scaled < 100 ? 1 : 0;
  return `${power ? scaled.toFixed(digits) : count(Math.round(value))} ${["", "k", "M", "G"][power]}${unit}`.trim();
}

export function change(original, now) {
  if (original === now) return "same";
  const percent = (100 * (now - original)) / original;
  return `${percent > 0 ? "+" : ""}${minus(percent.toFixed(Math.abs(percent) < 9.95 ? 1 : 0))}%`;
}

/** Rows of a table: name, original model, plan and change. */
export function compare(table, rows) {
  const head = ["", "original model", "plan", "change"].map((text) => el("th", { scope: "col" }, text));
  const lines = rows.map(([name, original, now, format = count]) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, format(original)), el("td", {}, format(now)),
      el("td", { class: original === now ? "same" : "" }, change(original, now))),
  );
  table.replaceChildren(el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...lines));
}

export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", {}, text); // pages without HTTPS have no clipboard API
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = button.textContent;
  if (label === "copied") return;
  button.textContent = "copied";
  say("Copied.");
  setTimeout(() => (button.textContent = label), 1200);
}
