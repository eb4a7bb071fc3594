/** The live page of a swarm: nodes, layers, requests and events, and a prompt with what its answer cost. */

import { latest, stream } from "./api.js";
import { app, at, count, el, interval, numbers, plural } from "./dom.js";

const STATES = { live: "live", suspected: "late", gone: "failed", quarantined: "quarantined" };
const FACTS = {
  "layers-live": "layers live", "nodes-live": "nodes live", running: "running requests", queued: "queued",
  completed: "answered", degraded: "with missing layers", refused: "refused", tokens: "tokens",
};
const LIMITS = { nodes: 2000, requests: 20, events: 50 };
const RETRY = 2000; // milliseconds
const lines = new Map(); // line of each node, with the layers and the state that it shows

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
const milliseconds = (seconds) => (seconds === null ? "" : `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`);
const layerOf = (name) => Number(/(\d+)[^:\d]*$/.exec(name)?.[1] ?? -1);
const isReplacement = (name) => name.includes(":"); // a layer of another model

/** Write layers as a plan does: 0-3 7. */
function ranges(layers) {
  const parts = [];
  for (const layer of [...layers].sort((one, other) => one - other)) {
    if (parts.at(-1)?.[1] === layer - 1) parts.at(-1)[1] = layer;
    else parts.push([layer, layer]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(" ");
}

function makeColumn(tag, layer, span, attributes, text = "") {
  const made = el(tag, attributes, text);
  made.style.gridColumn = `${layer + 1} / span ${span}`;
  return made;
}

function showLayers({ depth, nodes, live_layers: live }) {
  const step = Math.ceil(depth / 12);
  at("grid").style.setProperty("--depth", depth);
  const ticks = numbers(depth).filter((layer) => layer % step === 0);
  at("axis").replaceChildren(...ticks.map((layer) => makeColumn("span", layer, Math.min(step, depth - layer), {}, layer)));
  const up = nodes.filter(({ state }) => state === "live" || state === "suspected");
  const held = up.flatMap(({ layers }) => [...new Set(layers.filter((name) => !isReplacement(name)).map(layerOf))]);
  const replicas = numbers(depth).map((layer) => held.filter((each) => each === layer).length);
  const cells = replicas.map((size, layer) => {
    if (!live.includes(layer)) return makeColumn("span", layer, 1, { class: "none", title: `layer ${layer} is missing` }, "×");
    const title = `layer ${layer}: ${plural(size, "live replica")}`;
    return makeColumn("span", layer, 1, { class: size === 1 ? "one" : "", title }, size);
  });
  at("replicas").replaceChildren(...cells);
  const missing = numbers(depth).filter((layer) => !live.includes(layer));
  at("fewest").textContent = missing.length ? `missing: ${ranges(missing)}` : "";
}

function showNode({ name, state, layers, median, p99, waiting, calls, failures, reason }) {
  let shown = lines.get(name);
  if (!shown) {
    shown = { cells: el("div", { class: "cells" }), info: el("span") };
    shown.line = el("div", { "data-node": name }, el("span", { title: name }, name), shown.cells, shown.info);
    lines.set(name, shown);
  }
  if (shown.layers !== layers.join(" ")) {
    shown.layers = layers.join(" ");
    const cells = [...Map.groupBy(layers, layerOf)].map(([layer, names]) => {
      const kind = names.every(isReplacement) ? "replacement" : "";
      return makeColumn("i", layer, 1, { class: kind, title: `${name}: layer ${names.join(", ")}` });
    });
    shown.cells.replaceChildren(...cells);
  }
  if (shown.state !== state) {
    shown.line.className = `line ${state}${shown.state ? " flash" : ""}`;
    shown.state = state;
  }
  const work = [milliseconds(median), waiting && `${waiting} running`, failures && `${count(failures)} failed`];
  const text = state === "live" || state === "suspected" ? work.filter(Boolean).join(", ") : reason;
  shown.info.replaceChildren(el("b", {}, STATES[state] ?? state), ` ${text}`);
  shown.info.title = reason || `${plural(calls, "call")}, 99th percentile ${milliseconds(p99)}`;
  return shown.line;
}

function showNodes(nodes) {
  const names = new Set(nodes.map(({ name }) => name));
  for (const name of lines.keys()) if (!names.has(name)) lines.delete(name);
  const shown = nodes.slice(0, LIMITS.nodes).map(showNode);
  const old = at("nodes").children;
  if (shown.length !== old.length || shown.some((line, index) => old[index] !== line)) at("nodes").replaceChildren(...shown);
}

function showLists({ running, events }) {
  const requests = running.slice(0, LIMITS.requests).map(({ request, plan, tokens, missing }) => {
    const layers = missing.length ? `without ${ranges(missing)}` : "all layers";
    const name = el("code", {}, request.slice(0, 18));
    return el("li", { title: `${request}: ${plan}` }, name, plural(tokens, "token"), el("span", { class: "muted" }, layers));
  });
  const more = running.length - requests.length;
  if (!running.length || more) requests.push(el("li", { class: "muted" }, more ? `and ${count(more)} more` : "none"));
  at("requests").replaceChildren(...requests);
  const mark = JSON.stringify([events.length, events.at(-1)]);
  if (at("events").dataset.mark === mark) return;
  at("events").dataset.mark = mark;
  const items = events.slice(-LIMITS.events).reverse().map(({ kind, seconds, text }) => {
    const time = el("time", { class: "muted" }, clock(seconds));
    return el("li", { "data-kind": kind }, time, el("span", { class: "pill" }, kind), el("span", { class: "text" }, text));
  });
  at("events").replaceChildren(...items);
}

function showState(state, text) {
  at("state").className = `pill ${state}`;
  at("state").textContent = text;
}

function show(seen) {
  const { depth, nodes, quorum } = seen;
  const [live, up] = [seen.live_layers.length, nodes.filter(({ state }) => state === "live").length];
  if (live === depth) showState("live", "all layers live");
  else showState(live ? "suspected" : "gone", live ? `${depth - live} of ${depth} layers missing` : "no layer is live");
  at("quorum").textContent = quorum ? `quorum: ${quorum}` : "";
  const special = { "layers-live": `${live} of ${depth}`, "nodes-live": `${up} of ${nodes.length}`, running: seen.running.length };
  for (const id of Object.keys(FACTS)) at(id).textContent = special[id] ?? count(seen[id]);
  showLayers(seen);
  showNodes(nodes);
  showLists(seen);
}

async function watch() {
  for (;;) {
    try {
      for await (const seen of stream("swarm/events")) show(seen);
      showState("gone", "the server has stopped");
    } catch ({ status, message }) {
      showState("gone", status ? message : "the server cannot be reached");
      if (status === 401) return;
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY));
  }
}

function describeCost({ missing, expected_nats: { value, low, high, basis } }) {
  if (!missing.length) return "all layers";
  const loss = value === null ? "unknown" : `${interval({ delta: value, low, high })} nats/token (${basis})`;
  return `without ${ranges(missing)}, expected loss increase ${loss}`;
}

const asking = latest();

async function ask(event) {
  event.preventDefault();
  const [text, foot, prompt] = [el("p", { class: "tokens" }), el("p", { class: "muted" }, "waiting"), at("question").value];
  at("swarm-answer").hidden = false;
  at("swarm-answer").replaceChildren(text, foot);
  const sampling = { max_tokens: Number(at("swarm-tokens").value), temperature: Number(at("swarm-temperature").value) };
  const input = app.server.chat ? { messages: [{ role: "user", content: prompt }] } : { prompt };
  const path = app.server.chat ? "v1/chat/completions" : "v1/completions";
  const began = performance.now();
  await asking(async (signal) => {
    for await (const { choices, layerwise } of stream(path, { stream: true, ...sampling, ...input }, signal)) {
      text.append(choices[0]?.text ?? choices[0]?.delta?.content ?? "");
      if (!layerwise) continue;
      foot.textContent = `${((performance.now() - began) / 1000).toFixed(1)} s · ${describeCost(layerwise)}`;
      const spans = layerwise.spans.map((span) => {
        const tokens = `tokens ${span.from_token + 1} to ${span.to_token}: plan ${span.plan}`;
        return el("div", {}, `${tokens}, ${describeCost(span)}`);
      });
      if (spans.length > 1) foot.append(...spans);
    }
  }).catch(({ message }) => (foot.textContent = message));
}

export function startSwarm() {
  const facts = Object.entries(FACTS).map(([id, text]) => el("div", {}, el("dt", {}, text), el("dd", { id }, "–")));
  at("facts").replaceChildren(...facts);
  const key = Object.entries({ ...STATES, "live replacement": "of another model" });
  at("node-key").replaceChildren(...key.map(([name, text]) => el("span", { class: name }, el("i"), text)));
  at("ask").hidden = app.server.images;
  at("ask").addEventListener("submit", ask);
  at("swarm").hidden = false;
  watch();
}
