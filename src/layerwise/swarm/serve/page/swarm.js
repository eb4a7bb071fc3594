/** The live page of a swarm: nodes, layers, requests and events, and a prompt with what its answer cost. */

import { latest, stream } from "./api.js";
import { makePane, settings } from "./columns.js";
import { app, at, count, el, interval, listen, muted, numbers, plural, showError, write } from "./dom.js";

const STATES = { live: "live", suspected: "late", gone: "failed", quarantined: "quarantined" };
const FACTS = {
  "layers-live": "layers live", "nodes-live": "nodes live", running: "running requests", queued: "queued",
  completed: "answered", degraded: "with missing layers", refused: "refused", tokens: "tokens",
};
const LIMITS = { nodes: 2000, requests: 20, events: 50 };
const asking = latest();

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
const milliseconds = (seconds) => (seconds === null ? "" : `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`);
const layerOf = (name) => Number(/(\d+)[^:\d]*$/.exec(name)?.[1] ?? -1);
const isReplacement = (name) => name.includes(":"); // a layer of another model
const isUp = ({ state }) => state === "live" || state === "suspected";

/** Write layers as a plan does: 0-3 7. */
function ranges(layers) {
  const parts = [];
  for (const layer of [...layers].sort((one, other) => one - other)) {
    if (parts.at(-1)?.[1] === layer - 1) parts.at(-1)[1] = layer;
    else parts.push([layer, layer]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(" ");
}

function makeColumn(layer, attributes, text = "", span = 1) {
  const made = el("i", attributes, text);
  made.style.gridColumn = `${layer + 1} / span ${span}`;
  return made;
}

function showLayers({ depth, nodes, live_layers: live }) {
  const step = Math.ceil(depth / 12);
  const ticks = numbers(depth).filter((layer) => layer % step === 0);
  at("axis").replaceChildren(...ticks.map((layer) => makeColumn(layer, {}, layer, Math.min(step, depth - layer))));
  const ownLayers = ({ layers }) => [...new Set(layers.filter((each) => !isReplacement(each)).map(layerOf))];
  const held = nodes.filter(isUp).flatMap(ownLayers);
  const cells = numbers(depth).map((layer) => {
    if (!live.includes(layer)) return makeColumn(layer, { class: "none", title: `layer ${layer} is missing` }, "×");
    const size = held.filter((each) => each === layer).length;
    return makeColumn(layer, { class: size === 1 ? "one" : "", title: plural(size, "live replica") }, size);
  });
  at("grid").style.setProperty("--depth", depth);
  at("replicas").replaceChildren(...cells);
  const missing = numbers(depth).filter((layer) => !live.includes(layer));
  write("fewest", missing.length ? `missing: ${ranges(missing)}` : "");
}

function makeNode(node) {
  const { name, state, layers, median, p99, waiting, calls, failures, reason } = node;
  const cells = [...Map.groupBy(layers, layerOf)].map(([layer, names]) => {
    const kind = names.every(isReplacement) ? "replacement" : "";
    return makeColumn(layer, { class: kind, title: `${name}: layer ${names.join(", ")}` });
  });
  const work = [milliseconds(median), waiting && `${waiting} running`, failures && `${count(failures)} failed`];
  const text = ` ${isUp(node) ? work.filter(Boolean).join(", ") : reason}`;
  const title = reason || `${plural(calls, "call")}, 99th percentile ${milliseconds(p99)}`;
  const info = el("span", { title }, el("b", {}, STATES[state] ?? state), text);
  const line = { class: `line ${state}`, "data-node": name };
  return el("div", line, el("span", { title: name }, name), el("div", { class: "cells" }, ...cells), info);
}

function showLists({ running, events }) {
  const requests = running.slice(0, LIMITS.requests).map(({ request, plan, tokens, missing }) => {
    const layers = missing.length ? `without ${ranges(missing)}` : "all layers";
    const parts = [el("code", {}, request.slice(0, 18)), plural(tokens, "token"), muted(layers)];
    return el("li", { title: `${request}: ${plan}` }, ...parts);
  });
  const more = running.length - requests.length;
  if (!running.length || more) requests.push(muted(more ? `and ${count(more)} more` : "none", "li"));
  at("requests").replaceChildren(...requests);
  const lines = events.slice(-LIMITS.events).reverse().map(({ kind, seconds, text }) => el("li", { "data-kind": kind },
    muted(clock(seconds), "time"), el("span", { class: "pill" }, kind), el("span", { class: "text" }, text)));
  at("events").replaceChildren(...lines);
}

const showState = (state, textContent) => Object.assign(at("state"), { className: `pill ${state}`, textContent });
function show(seen) {
  const { depth, nodes, quorum, running } = seen;
  const [live, up] = [seen.live_layers.length, nodes.filter(({ state }) => state === "live").length];
  if (live === depth) showState("live", "all layers live");
  else showState(live ? "suspected" : "gone", live ? `${depth - live} of ${depth} layers missing` : "no layer is live");
  write("quorum", quorum ? `quorum: ${quorum}` : "");
  const counts = { ...seen, running: running.length };
  for (const id of Object.keys(FACTS)) write(id, count(counts[id] ?? 0));
  write("layers-live", `${live} of ${depth}`);
  write("nodes-live", `${up} of ${nodes.length}`);
  showLayers(seen);
  at("nodes").replaceChildren(...nodes.slice(0, LIMITS.nodes).map(makeNode));
  showLists(seen);
}

async function watch() {
  for (let status = 0; status !== 401; await new Promise((resolve) => setTimeout(resolve, 2000))) {
    try {
      for await (const seen of stream("swarm/events")) show(seen);
      showState("gone", "the server has stopped");
    } catch (error) {
      status = error.status;
      showState("gone", status ? error.message : "the server cannot be reached");
    }
  }
}

function describeCost({ missing, expected_nats: { value, low, high, basis } }) {
  const loss = value === null ? "unknown" : `${interval({ delta: value, low, high })} nats/token (${basis})`;
  return missing.length ? `without ${ranges(missing)}, expected loss increase ${loss}` : "all layers";
}

async function ask(submitted) {
  submitted.preventDefault();
  const { prompt, new_tokens: max_tokens, temperature } = settings();
  const { card, tokens, foot } = makePane(at("original"));
  const [path, input] = app.server.chat ? ["v1/chat/completions", { messages: [{ role: "user", content: prompt }] }]
    : ["v1/completions", { prompt }];
  const began = performance.now();
  await asking(async (signal) => {
    const body = { stream: true, max_tokens, temperature, ...input };
    for await (const { choices, layerwise } of stream(path, body, signal)) {
      tokens.append(choices[0]?.text ?? choices[0]?.delta?.content ?? "");
      if (!layerwise) continue;
      const seconds = ((performance.now() - began) / 1000).toFixed(1);
      const spans = layerwise.spans.map((span) =>
        el("div", {}, `tokens ${span.from_token + 1} to ${span.to_token}: plan ${span.plan}, ${describeCost(span)}`));
      foot.replaceChildren(`${seconds} s · ${describeCost(layerwise)}`, ...(spans.length > 1 ? spans : []));
    }
  }).catch((error) => showError("generate-error", error));
  card.classList.remove("running");
}

export function startSwarm() {
  const facts = Object.entries(FACTS).map(([id, text]) => el("div", {}, el("dt", {}, text), el("dd", { id }, "–")));
  const key = Object.entries({ ...STATES, "live replacement": "of another model" });
  at("facts").replaceChildren(...facts);
  at("node-key").replaceChildren(...key.map(([name, text]) => el("span", { class: name }, el("i"), text)));
  at("chat").checked = app.server.chat;
  for (const id of ["chat-label", "seed-label", "shades", "answers"]) at(id).hidden = true;
  at("swarm").hidden = false;
  at("writing").hidden = app.server.images;
  write("writing-title", "Ask the swarm");
  write("again", "send");
  listen("prompt-form", "submit", ask);
  watch();
}
