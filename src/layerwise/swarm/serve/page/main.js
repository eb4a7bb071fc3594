/** Start the page: the playground of one model, or the live page of a swarm. */

import { call, connection, hasToken, latest, setToken, stream } from "./api.js";
import { settings, startColumns } from "./columns.js";
import { app, at, button, copy, count, debounce, emit, interval, on, ranked, showError, without } from "./dom.js";
import { setPlan, startPlan } from "./plan.js";
import { startScore } from "./score.js";
import { showImportance, startStrip } from "./strip.js";
import { startSwarm } from "./swarm.js";
import { startTake } from "./take.js";

const MAX_LINKED_TEXT = 2000; // characters
const RETRY = 1500; // milliseconds
const measuring = latest();
let announced = ""; // the layers that matter least and most, as the other panels know them

/** Measure every layer on a text, or on the server's. Edits do not interrupt this. */
async function measure(text) {
  app.layers.clear();
  announced = "";
  at("finding").textContent = "Which layers can go?";
  await measuring(async (signal) => {
    for await (const event of stream("api/importance", { text }, signal)) {
      for (const each of event.layers ?? []) app.layers.set(each.layer, each);
      showImportance();
      showFinding(event, text === null ? app.server.text.name : "your text");
    }
  }).catch(({ message }) => (at("progress").textContent = message));
}

function showFinding({ done, finding, measured, tokens }, source) {
  const [least, most] = [ranked()[0], ranked().at(-1)];
  const { depth } = app.server;
  const soFar = `So far, layer ${least?.layer} matters least and layer ${most?.layer} most.`;
  at("finding").textContent = finding ?? (measured > 1 ? soFar : "Which layers can go?");
  const progress = `Measuring on ${source}: ${measured} of ${depth} layers, ${count(tokens ?? 0)} tokens`;
  at("progress").textContent = done ? `Measured on ${source}.` : progress;
  if (app.layers.size < depth || announced === `${least.layer} ${most.layer}`) return;
  announced = `${least.layer} ${most.layer}`;
  const skip = (layer) => setPlan(without(layer), `Layer ${layer} skipped.`);
  const tries = [least, most].map(({ layer }) => button(`skip layer ${layer}`, () => skip(layer)));
  at("try").replaceChildren(...tries);
  emit("measured");
}

/** Fields of the page, by their name in the fragment of its address. */
const FIELDS = { prompt: "prompt", new_tokens: "new-tokens", temperature: "temperature", seed: "seed", text: "text" };

const saveState = debounce(300, () => {
  const { chat, ...state } = { plan: app.plan.plan, ...settings() };
  if (chat) state.chat = 1;
  if (at("text").value && at("text").value.length <= MAX_LINKED_TEXT) state.text = at("text").value;
  window.history.replaceState(null, "", `#${new URLSearchParams(state)}`);
});

function restoreState() {
  const state = new URLSearchParams(location.hash.slice(1));
  for (const [name, id] of Object.entries(FIELDS)) if (state.has(name)) at(id).value = state.get(name);
  at("chat").checked = state.has("chat");
  if (state.has("text")) at("text-panel").open = true;
  return setPlan(state.get("plan") ?? `0-${app.server.depth - 1}`, "");
}

async function startPlay() {
  at("structure").textContent = app.server.structure;
  for (const startPanel of [startPlan, startStrip, startColumns, startScore, startTake]) startPanel();
  at("play").hidden = false;
  if (!(await restoreState())) await setPlan(`0-${app.server.depth - 1}`, "");
  on("plan", saveState);
  at("play").addEventListener("input", saveState);
  window.addEventListener("hashchange", restoreState);
  at("copy-link").addEventListener("click", ({ target }) => copy(location.href, target));
  at("measure-text").addEventListener("click", () => measure(at("text").value));
  measure(null);
}

async function start() {
  try {
    app.server = await call("api/state");
  } catch (error) {
    if (error.status === 401) return;
    showError("banner", error.status ? error : new Error("The server cannot be reached. Trying again."));
    return void setTimeout(start, RETRY);
  }
  at("access").hidden = at("banner").hidden = true;
  at("model").textContent = app.server.model;
  at("kicker").textContent = `layerwise ${app.server.mode}`;
  document.title = `${app.server.model} · layerwise ${app.server.mode}`;
  if (app.server.mode === "play") await startPlay();
  else startSwarm();
}

connection.addEventListener("token", () => {
  at("wrong").hidden = !hasToken();
  at("access").hidden = false;
});

connection.addEventListener("lost", async () => {
  if (app.server?.mode !== "play" || !at("banner").hidden) return;
  showError("banner", new Error("The server does not answer. Trying to reconnect."));
  while (!(await call("api/state").catch(() => null))) await new Promise((resolve) => setTimeout(resolve, RETRY));
  at("banner").hidden = true;
  await setPlan(() => app.plan.plan, "Connected again.");
  measure(null);
});

at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(at("token").value.trim());
  at("token").value = "";
  start();
});
start();
