"use strict";
// Shows the overviews that the server sends: one at once, and one for every change. Everything is set as text.
const KEY = "layerwise-swarm-token";
const SHOWN = { nodes: 2000, requests: 20, events: 50 };
const STATES = { live: "live", suspected: "late", gone: "gone", quarantined: "quarantined" };
const at = (id) => document.getElementById(id);
const known = new Map(); // the line of each node, with the layers and the state that it shows

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

const number = (value) => value.toLocaleString("en-US");
const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
const milliseconds = (seconds) => (seconds === null ? "" : `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`);
const layerOf = (name) => Number(/(\d+)[^:\d]*$/.exec(name)?.[1] ?? -1);

/** Numbers as a plan writes them: 0-3 7. */
function ranges(numbers) {
  const parts = [];
  for (const each of [...numbers].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && last[1] === each - 1) last[1] = each;
    else parts.push([each, each]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(" ");
}

function column(tag, className, text, start, span) {
  const made = element(tag, className, text);
  made.style.setProperty("--column", start + 1);
  if (span) made.style.setProperty("--span", span);
  return made;
}

function showAxis(depth) {
  if (Number(at("axis").dataset.depth) === depth) return;
  at("axis").dataset.depth = depth;
  at("grid").style.setProperty("--depth", depth);
  const step = depth <= 12 ? 1 : Math.ceil(depth / 12);
  const ticks = [];
  for (let layer = 0; layer < depth; layer += step) {
    ticks.push(column("span", step > 1 ? "first" : "", layer, layer, Math.min(step, depth - layer)));
  }
  at("axis").replaceChildren(...ticks);
}

function showReplicas(seen) {
  const counts = new Array(seen.depth).fill(0);
  for (const node of seen.nodes) {
    if (node.state !== "live" && node.state !== "suspected") continue;
    const own = node.layers.filter((name) => !name.includes(":")); // those of other models are no replicas
    for (const layer of new Set(own.map(layerOf))) if (layer in counts) counts[layer] += 1;
  }
  const live = new Set(seen.live_layers);
  const lost = counts.map((_, layer) => layer).filter((layer) => !live.has(layer));
  const cells = counts.map((count, layer) => {
    const gone = !live.has(layer);
    const cell = column("span", gone ? "none" : count === 1 ? "one" : "", gone ? "×" : count, layer);
    cell.title = gone ? `layer ${layer} is lost` : `layer ${layer}: ${count} live`;
    return cell;
  });
  at("replicas").replaceChildren(...cells);
  at("fewest").textContent = lost.length ? `lost: ${ranges(lost)}` : "";
  at("fewest").title = at("fewest").textContent;
}

function lineOf(node) {
  const layers = node.layers.join(" ");
  let shown = known.get(node.name);
  if (!shown) {
    const line = element("div", "line");
    const info = element("span", "info");
    const cells = element("div", "cells");
    const name = element("span", "name", node.name);
    name.title = node.name;
    line.append(name, cells, info);
    shown = { line, cells, info, layers: null, state: null };
    known.set(node.name, shown);
  }
  if (shown.layers !== layers) {
    const byNumber = Map.groupBy(node.layers, layerOf);
    shown.cells.replaceChildren(
      ...[...byNumber].map(([layer, names]) => {
        const cell = column("i", names.every((name) => name.includes(":")) ? "replacement" : "", "", layer);
        cell.title = `${node.name}: layer ${names.join(", ")}`;
        return cell;
      }),
    );
    shown.layers = layers;
  }
  if (shown.state !== node.state) {
    shown.line.className = `line ${node.state}${shown.state === null ? "" : " flash"}`;
    shown.line.dataset.node = node.name;
    shown.line.dataset.state = node.state;
    shown.state = node.state;
  }
  const busy = node.waiting ? `, ${node.waiting} under way` : "";
  const failed = node.failures ? `, ${number(node.failures)} failed` : "";
  const rest = node.state === "live" || node.state === "suspected" ? `${milliseconds(node.median)}${busy}${failed}` : node.reason;
  shown.info.replaceChildren(element("b", "", STATES[node.state] ?? node.state), ` ${rest.replace(/^, /, "")}`);
  shown.info.title = node.reason || `${number(node.calls)} calls${failed}, 99th percentile ${milliseconds(node.p99)}`;
  return shown.line;
}

function showNodes(seen) {
  const lines = seen.nodes.slice(0, SHOWN.nodes).map(lineOf);
  const names = new Set(seen.nodes.map((node) => node.name));
  for (const name of known.keys()) if (!names.has(name)) known.delete(name);
  const nodes = at("nodes");
  if (lines.length !== nodes.children.length || lines.some((line, index) => nodes.children[index] !== line)) {
    nodes.replaceChildren(...lines);
  }
}

function showRequests(seen) {
  const items = seen.running.slice(0, SHOWN.requests).map((request) => {
    const item = element("li");
    const without = request.missing.length ? `without ${ranges(request.missing)}` : "";
    item.append(
      element("code", "", request.request.slice(0, 18)),
      element("span", "", `${number(request.tokens)} token${request.tokens === 1 ? "" : "s"}`),
      element("span", without ? "without" : "plan", without || "all layers"),
    );
    item.title = `${request.request}: ${request.plan}`;
    return item;
  });
  const more = seen.running.length - items.length;
  if (more > 0) items.push(element("li", "empty", `and ${number(more)} more`));
  at("requests").replaceChildren(...(items.length ? items : [element("li", "empty", "none")]));
}

function showEvents(seen) {
  const last = seen.events.at(-1);
  const mark = last ? `${seen.events.length} ${last.seconds} ${last.text}` : "none";
  if (at("events").dataset.mark === mark) return;
  at("events").dataset.mark = mark;
  const items = seen.events.slice(-SHOWN.events).reverse().map((each) => {
    const item = element("li");
    item.dataset.kind = each.kind;
    const kind = /^[a-z]+$/.test(each.kind) ? each.kind : "";
    item.append(element("time", "", clock(each.seconds)), element("span", `kind ${kind}`, each.kind), element("span", "text", each.text));
    return item;
  });
  at("events").replaceChildren(...(items.length ? items : [element("li", "empty", "nothing yet")]));
}

function say(state, text) {
  at("state").className = `pill ${state}`;
  at("state").textContent = text;
}

function show(seen) {
  at("access").hidden = true;
  at("swarm").hidden = at("facts").hidden = false;
  document.title = `${seen.model} · layerwise swarm`;
  at("model").textContent = seen.model;
  at("quorum").textContent = seen.quorum ? `quorum: ${seen.quorum}` : "";
  const lost = seen.depth - seen.live_layers.length;
  if (!seen.live_layers.length) say("lost", "no layer is live");
  else if (lost) say("degraded", `${lost} of ${seen.depth} layers lost`);
  else say("whole", "whole");
  at("layers-live").textContent = `${seen.live_layers.length} of ${seen.depth}`;
  at("nodes-live").textContent = `${seen.nodes.filter((node) => node.state === "live").length} of ${seen.nodes.length}`;
  at("running").textContent = number(seen.running.length);
  for (const name of ["queued", "completed", "degraded", "refused", "tokens"]) at(name).textContent = number(seen[name]);
  showAxis(seen.depth);
  showReplicas(seen);
  showNodes(seen);
  showRequests(seen);
  showEvents(seen);
}

async function read(response) {
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) show(JSON.parse(part.slice(6)));
  }
}

async function connect() {
  const token = sessionStorage.getItem(KEY);
  for (;;) {
    try {
      const headers = token ? { Authorization: `Bearer ${token}` } : {};
      const response = await fetch("swarm/events", { headers, cache: "no-store" });
      if (response.status === 401) {
        sessionStorage.removeItem(KEY);
        say("connecting", "a token is needed");
        at("wrong").hidden = !token;
        at("access").hidden = false;
        return;
      }
      if (response.ok) await read(response);
      else say("lost", (await response.json()).error.message);
      if (response.ok) say("lost", "the server has stopped sending");
    } catch (error) {
      say("lost", "the server cannot be reached");
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("token").value.trim());
  at("token").value = "";
  connect();
});
connect();
