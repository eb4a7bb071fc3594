/** Start the page: the playground of one model, or the live page of a swarm. */

import { call, stream } from "./api.js";
import { settings, startColumns } from "./columns.js";
import { app, at, copy, debounce, emit, listen, on, say, showError, without, write } from "./dom.js";
import { setPlan, startPlan } from "./plan.js";
import { startScore } from "./score.js";
import { showImportance, startStrip } from "./strip.js";
import { startSwarm } from "./swarm.js";
import { startTake } from "./take.js";

const MAX_LINKED_TEXT = 2000; // characters
const LINKED_FIELDS = ["prompt", "new_tokens", "temperature", "seed", "text"];
const wait = () => new Promise((resolve) => setTimeout(resolve, 1500));
const duration = (seconds) => (seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`);

/** Measure every layer on a text, or on the server's. Edits do not interrupt this. */
async function measure(text) {
  const { depth, text: { name } } = app.server;
  const source = text === null ? name : "your text";
  let first = null;
  app.layers.clear();
  write("finding", "Which layers can go?");
  write("progress", `Measuring on ${source}: each layer reads 8 paragraphs first.`);
  try {
    for await (const event of stream("api/importance", { text })) {
      const { layers, done, finding, measured, total_tokens: total } = event;
      const before = app.layers.size;
      for (const each of layers) app.layers.set(each.layer, each);
      showImportance();
      if (finding) write("finding", finding.replaceAll(/ (?=[^[\]]*\])/g, "\u00a0")); // keep an interval on one line
      const now = { time: Date.now(), read: [...app.layers.values()].reduce((sum, { tokens }) => sum + tokens, 0) };
      first ??= now;
      const seconds = ((total - now.read) * (now.time - first.time)) / (now.read - first.read) / 1000;
      const left = seconds > 0 ? `; about ${duration(seconds)} left` : "";
      const state = `Measuring on ${source}: ${measured} of ${depth} layers have an interval${left}.`;
      write("progress", done ? `Measured on ${source}.` : state);
      if (done || (before < depth && app.layers.size === depth)) emit("measured");
      if (done) say(finding ?? "");
    }
  } catch ({ message }) {
    say(write("progress", message));
  }
}

/** Keep the state of the page in the fragment of its address. */
const saveState = debounce(300, () => {
  const { chat, ...state } = { plan: app.plan.plan, ...settings() };
  if (chat) state.chat = 1;
  if (at("text").value && at("text").value.length <= MAX_LINKED_TEXT) state.text = at("text").value;
  window.history.replaceState(null, "", `#${new URLSearchParams(state)}`);
});

async function restoreState() {
  const state = new URLSearchParams(location.hash.slice(1));
  for (const id of LINKED_FIELDS) if (state.has(id)) at(id).value = state.get(id);
  at("chat").checked = state.has("chat");
  at("text-panel").open ||= state.has("text");
  if (!(await setPlan(state.get("plan") ?? without(), "")) && !app.plan) await setPlan(without(), "");
}

async function startPlay() {
  write("structure", app.server.structure);
  at("play").hidden = at("more").hidden = false;
  at("writing").hidden = !app.server.generates;
  for (const startPanel of [startPlan, startStrip, startColumns, startScore, startTake]) startPanel();
  await restoreState();
  on("plan", saveState);
  document.addEventListener("input", saveState);
  window.addEventListener("hashchange", restoreState);
  listen("copy-link", "click", ({ target }) => copy(location.href, target));
  listen("measure-text", "click", () => measure(at("text").value));
  measure(null);
}

async function start() {
  try {
    app.server = await call("api/state");
  } catch (error) {
    if (error.status === 401) return;
    showError("banner", error.status ? error : new Error("The server cannot be reached. Trying again."));
    return wait().then(start);
  }
  const { mode, model } = app.server;
  at("access").hidden = at("banner").hidden = true;
  write("model", model);
  write("kicker", `layerwise ${mode}`);
  document.title = `${model} · layerwise ${mode}`;
  await (mode === "play" ? startPlay() : startSwarm());
}

on("token", () => ([at("wrong").hidden, at("access").hidden] = [!sessionStorage.token, false]));
on("lost", async () => {
  if (app.server?.mode !== "play" || !at("banner").hidden) return;
  showError("banner", new Error("The server does not answer. Trying to reconnect."));
  while (!(await call("api/state").catch(() => null))) await wait();
  at("banner").hidden = true;
  await setPlan(() => app.plan.plan, "Connected again.");
  measure(null);
});
listen("access", "submit", (event) => {
  event.preventDefault();
  sessionStorage.token = at("token").value.trim();
  at("token").value = "";
  start();
});
start();
