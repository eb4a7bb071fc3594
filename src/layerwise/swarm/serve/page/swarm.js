/** The live page of a swarm: nodes, layers, requests and events, and a prompt with what its answer cost. */

import { stream } from "./api.js";
import { makePane, settings } from "./columns.js";
import { app, at, count, el, interval, listen, muted, numbers, plural, showError, write } from "./dom.js";

const STATES = { live: "live", suspected: "late", gone: "failed", quarantined: "quarantined" };
const FACTS = {
  "layers live": ({ depth, live_layers: { length } }) => `${length} of ${depth}`,
  "nodes live": ({ nodes }) => `${nodes.filter(({ state }) => state === "live").length} of ${nodes.length}`,
  "running requests": ({ running }) => count(running.length), queued: ({ queued }) => count(queued),
  answered: ({ completed }) => count(completed), "with missing layers": ({ degraded }) => count(degraded),
  refused: ({ refused }) => count(refused), tokens: ({ tokens }) => count(tokens),
};
const LIMITS = { nodes: 2000, requests: 20, events: 50 };

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
const milliseconds = (seconds) => (seconds === null ? "" : `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`);
const layerOf = (name) => Number(/(\d+)[^:\d]*$/.exec(name)?.[1] ?? -1);
const isReplacement = (name) => name.includes(":"); // a layer of another model
const isUp = ({ state }) => state === "live" || state === "suspected";

/** Write ascending layers as a plan does: 0-3 7. */
const ranges = (layers) => layers.filter((layer) => !layers.includes(layer - 1)).map((first) => {
  const last = layers.find((layer) => layer >= first && !layers.includes(layer + 1));
  return first === last ? `${first}` : `${first}-${last}`;
}).join(" ");

function makeCell(layer, attributes, text = "", span = 1) {
  const made = el("i", attributes, text);
  made.style.gridColumn = `${layer + 1} / span ${span}`;
  return made;
}

/** Make a row: a name, a cell at the place of each layer, and a note. */
const makeRow = (attributes, name, cells, ...note) => el("li", attributes, el("span", { title: name }, name),
  el("div", { class: "cells" }, ...cells), el("span", {}, ...note));

function makeLayerRows({ depth, nodes, live_layers: live }) {
  const step = Math.ceil(depth / 12);
  const ticks = numbers(depth).filter((layer) => layer % step === 0);
  const axis = ticks.map((layer) => makeCell(layer, {}, layer, Math.min(step, depth - layer)));
  const ownLayers = ({ layers }) => new Set(layers.filter((each) => !isReplacement(each)).map(layerOf));
  const held = nodes.filter(isUp).map(ownLayers);
  const replicas = numbers(depth).map((layer) => {
    if (!live.includes(layer)) return makeCell(layer, { class: "none", title: `layer ${layer} is missing` }, "×");
    const size = held.filter((each) => each.has(layer)).length;
    return makeCell(layer, { class: size === 1 ? "one" : "", title: plural(size, "live replica") }, size);
  });
  const missing = numbers(depth).filter((layer) => !live.includes(layer));
  const note = missing.length ? `missing: ${ranges(missing)}` : "";
  return [makeRow({}, "layer", axis), makeRow({ id: "replicas" }, "replicas", replicas, note)];
}

function makeNode(node) {
  const { name, state, layers, median, p99, waiting, calls, failures, reason } = node;
  const cells = [...Map.groupBy(layers, layerOf)].map(([layer, names]) => {
    const kind = names.every(isReplacement) ? "replacement" : "";
    return makeCell(layer, { class: kind, title: `${name}: layer ${names.join(", ")}` });
  });
  const work = [milliseconds(median), waiting && `${waiting} running`, failures && `${count(failures)} failed`];
  const title = reason || `${plural(calls, "call")}, 99th percentile ${milliseconds(p99)}`;
  const note = ` ${isUp(node) ? work.filter(Boolean).join(", ") : reason}`;
  return makeRow({ class: state, "data-node": name, title }, name, cells, el("b", {}, STATES[state] ?? state), note);
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
  const { depth, nodes, quorum, live_layers: { length: live } } = seen;
  if (live === depth) showState("live", "all layers live");
  else showState(live ? "suspected" : "gone", live ? `${depth - live} of ${depth} layers missing` : "no layer is live");
  write("quorum", quorum && `quorum: ${quorum}`);
  const facts = Object.entries(FACTS).map(([name, format]) => [el("dd", {}, format(seen)), el("dt", {}, name)]);
  at("facts").replaceChildren(...facts.map((fact) => el("div", {}, ...fact)));
  at("grid").style.setProperty("--depth", depth);
  at("layers").replaceChildren(...makeLayerRows(seen));
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
  showError("generate-error", null);
  try {
    for await (const { choices, layerwise } of stream(path, { stream: true, max_tokens, temperature, ...input })) {
      tokens.append(choices[0]?.text ?? choices[0]?.delta?.content ?? "");
      if (!layerwise) continue;
      const seconds = ((performance.now() - began) / 1000).toFixed(1);
      const spans = layerwise.spans.map((span) =>
        el("div", {}, `tokens ${span.from_token + 1} to ${span.to_token}: plan ${span.plan}, ${describeCost(span)}`));
      foot.replaceChildren(`${seconds} s · ${describeCost(layerwise)}`, ...(spans.length > 1 ? spans : []));
    }
  } catch (error) {
    showError("generate-error", error);
    card.replaceChildren();
  }
  if (tokens.isConnected) card.classList.remove("running");
}

export function startSwarm() {
  const key = Object.entries({ ...STATES, "live replacement": "of another model" });
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
