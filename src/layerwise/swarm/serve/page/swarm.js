/** The live page of a swarm: nodes, layers, requests and events, and a prompt for it. */

import { latest, stream } from "./api.js";
import { app, at, count, el, interval, plural } from "./dom.js";

const STATES = { live: "live", suspected: "late", gone: "failed", quarantined: "quarantined" };
const FACTS = ["layers-live", "nodes-live", "running", "queued", "completed", "degraded", "refused", "tokens"];
const WORDS = ["layers live", "nodes live", "running requests", "queued", "answered", "with missing layers", "refused", "tokens"];
const LIMITS = { nodes: 2000, requests: 20, events: 50 };
const lines = new Map(); // line of each node, with the layers and the state that it shows

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
const milliseconds = (seconds) => (seconds === null ? "" : `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`);
const layerOf = (name) => Number(/(\d+)[^:\d]*$/.exec(name)?.[1] ?? -1);

/** Write numbers as a plan does: 0-3 7. */
function ranges(numbers) {
  const parts = [];
  for (const each of [...numbers].sort((one, other) => one - other)) {
    if (parts.at(-1)?.[1] === each - 1) parts.at(-1)[1] = each;
    else parts.push([each, each]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(" ");
}

function column(tag, className, text, start, span = 1) {
  const made = el(tag, { class: className }, text);
  made.style.gridColumn = `${start + 1} / span ${span}`;
  return made;
}

function showAxis(depth) {
  if (Number(at("axis").dataset.depth) === depth) return;
  at("axis").dataset.depth = depth;
  at("grid").style.setProperty("--depth", depth);
  const step = Math.ceil(depth / 12);
  const starts = [...Array(Math.ceil(depth / step)).keys()].map((each) => each * step);
  at("axis").replaceChildren(...starts.map((layer) => column("span", "", `${layer}`, layer, Math.min(step, depth - layer))));
}

function showReplicas({ depth, nodes, live_layers }) {
  const held = nodes.filter(({ state }) => state === "live" || state === "suspected")
    .flatMap(({ layers }) => [...new Set(layers.filter((name) => !name.includes(":")).map(layerOf))]);
  const live = new Set(live_layers);
  const lost = [...Array(depth).keys()].filter((layer) => !live.has(layer));
  at("replicas").replaceChildren(...[...Array(depth).keys()].map((layer) => {
    const replicas = held.filter((each) => each === layer).length;
    const cell = column("span", live.has(layer) ? (replicas === 1 ? "one" : "") : "none", live.has(layer) ? `${replicas}` : "×", layer);
    cell.title = live.has(layer) ? `layer ${layer}: ${plural(replicas, "live replica")}` : `layer ${layer} is missing`;
    return cell;
  }));
  at("fewest").textContent = lost.length ? `missing: ${ranges(lost)}` : "";
}

function showNode(node) {
  let shown = lines.get(node.name);
  if (!shown) {
    const [cells, info] = [el("div", { class: "cells" }), el("span", { class: "info" })];
    shown = { line: el("div", {}, el("span", { class: "name", title: node.name }, node.name), cells, info), cells, info };
    lines.set(node.name, shown);
  }
  if (shown.layers !== node.layers.join(" ")) {
    shown.layers = node.layers.join(" ");
    shown.cells.replaceChildren(...[...Map.groupBy(node.layers, layerOf)].map(([layer, names]) => {
      const cell = column("i", names.every((name) => name.includes(":")) ? "replacement" : "", "", layer);
      cell.title = `${node.name}: layer ${names.join(", ")}`;
      return cell;
    }));
  }
  if (shown.state !== node.state) {
    shown.line.className = `line ${node.state}${shown.state ? " flash" : ""}`;
    Object.assign(shown.line.dataset, { node: node.name, state: node.state });
    shown.state = node.state;
  }
  const parts = [milliseconds(node.median), node.waiting && `${node.waiting} running`, node.failures && `${count(node.failures)} failed`];
  const isUp = node.state === "live" || node.state === "suspected";
  shown.info.replaceChildren(el("b", {}, STATES[node.state] ?? node.state), ` ${isUp ? parts.filter(Boolean).join(", ") : node.reason}`);
  shown.info.title = node.reason || `${plural(node.calls, "call")}, 99th percentile ${milliseconds(node.p99)}`;
  return shown.line;
}

function showNodes(nodes) {
  const shown = nodes.slice(0, LIMITS.nodes).map(showNode);
  const names = new Set(nodes.map((node) => node.name));
  for (const name of lines.keys()) if (!names.has(name)) lines.delete(name);
  const isSame = shown.length === at("nodes").children.length && shown.every((line, index) => at("nodes").children[index] === line);
  if (!isSame) at("nodes").replaceChildren(...shown);
}

function showList(id, items, empty) {
  at(id).replaceChildren(...(items.length ? items : [el("li", { class: "muted" }, empty)]));
}

function showRequests(running) {
  const items = running.slice(0, LIMITS.requests).map(({ request, plan, tokens, missing }) => el("li", { title: `${request}: ${plan}` },
    el("code", {}, request.slice(0, 18)), el("span", {}, plural(tokens, "token")),
    el("span", { class: missing.length ? "late" : "muted" }, missing.length ? `without ${ranges(missing)}` : "all layers")));
  if (running.length > items.length) items.push(el("li", { class: "muted" }, `and ${count(running.length - items.length)} more`));
  showList("requests", items, "none");
}

function showEvents(events) {
  const mark = JSON.stringify([events.length, events.at(-1)]);
  if (at("events").dataset.mark === mark) return;
  at("events").dataset.mark = mark;
  showList("events", events.slice(-LIMITS.events).reverse().map(({ kind, seconds, text }) => el("li", { "data-kind": kind },
    el("time", { class: "muted" }, clock(seconds)), el("span", { class: "kind" }, kind), el("span", { class: "text" }, text))), "none yet");
}

function showState(state, text) {
  at("state").className = `pill ${state}`;
  at("state").textContent = text;
}

function show(seen) {
  const live = seen.live_layers.length;
  at("quorum").textContent = seen.quorum ? `quorum: ${seen.quorum}` : "";
  if (!live) showState("gone", "no layer is live");
  else if (live < seen.depth) showState("suspected", `${seen.depth - live} of ${seen.depth} layers missing`);
  else showState("live", "all layers live");
  const nodes = seen.nodes.filter((node) => node.state === "live").length;
  const values = [`${live} of ${seen.depth}`, `${nodes} of ${seen.nodes.length}`, count(seen.running.length), ...FACTS.slice(3).map((name) => count(seen[name]))];
  FACTS.forEach((id, index) => (at(id).textContent = values[index]));
  showAxis(seen.depth);
  showReplicas(seen);
  showNodes(seen.nodes);
  showRequests(seen.running);
  showEvents(seen.events);
}

async function watch() {
  for (;;) {
    try {
      for await (const seen of stream("swarm/events")) show(seen);
      showState("gone", "the server has stopped");
    } catch (error) {
      showState("gone", error.status ? error.message : "the server cannot be reached");
      if (error.status === 401) return;
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

const cost = ({ missing, expected_nats: { value, low, high, basis } }) =>
  missing.length === 0 ? "all layers" : `without ${ranges(missing)}: ${value === null ? "cost unknown" : `${interval({ delta: value, low, high })} nats/token (${basis})`}`;

const asking = latest();

async function ask(event) {
  event.preventDefault();
  const prompt = at("question").value;
  const [text, foot] = [el("p", { class: "tokens" }), el("p", { class: "muted" }, "…")];
  at("swarm-answer").hidden = false;
  at("swarm-answer").replaceChildren(text, foot);
  const body = { stream: true, max_tokens: Number(at("swarm-tokens").value), temperature: Number(at("swarm-temperature").value) };
  const input = app.server.chat ? { messages: [{ role: "user", content: prompt }] } : { prompt };
  const began = performance.now();
  await asking(async (signal) => {
    for await (const { choices, layerwise } of stream(app.server.chat ? "v1/chat/completions" : "v1/completions", { ...body, ...input }, signal)) {
      text.append(choices[0]?.text ?? choices[0]?.delta?.content ?? "");
      if (!layerwise) continue;
      foot.textContent = `${((performance.now() - began) / 1000).toFixed(1)} s · ${cost(layerwise)}`;
      foot.append(...layerwise.spans.map((span) => el("div", {}, `tokens ${span.from_token} to ${span.to_token - 1}: plan ${span.plan}, ${cost(span)}`)));
    }
  }).catch((error) => (foot.textContent = error.message));
}

export function startSwarm() {
  at("swarm").hidden = false;
  at("facts").replaceChildren(...FACTS.map((id, index) => el("div", {}, el("dt", {}, WORDS[index]), el("dd", { id }, "–"))));
  const key = Object.entries({ ...STATES, "live replacement": "of another model" });
  at("node-key").replaceChildren(...key.map(([name, text]) => el("span", { class: name }, el("i"), text)));
  at("ask").hidden = app.server.images;
  at("ask").addEventListener("submit", ask);
  watch();
}
