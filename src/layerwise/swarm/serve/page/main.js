/** Start the page: the playground of one model, or the live page of a swarm. */

import { call, connection, hasToken, latest, setToken, stream } from "./api.js";
import { settings, startColumns } from "./columns.js";
import { app, at, copy, debounce, el, emit, interval, nats, on, ranked, showError, signed, without } from "./dom.js";
import { setPlan, startPlan } from "./plan.js";
import { startScore } from "./score.js";
import { startStrip, update } from "./strip.js";
import { startSwarm } from "./swarm.js";
import { startTake } from "./take.js";

const LINKED_TEXT = 2000; // characters of a text that a link may have
const measuring = latest();

async function measure(text) {
  app.layers.clear();
  update();
  at("finding").textContent = "Which layer can go?";
  await measuring(async (signal) => {
    for await (const event of stream("api/importance", { text }, signal)) {
      for (const each of event.layers ?? []) app.layers.set(each.layer, each);
      update();
      showFinding(event);
    }
  }).catch((error) => (at("progress").textContent = error.message));
}

function showFinding({ done, finding, measured, tokens }) {
  const [least, most] = [ranked()[0], ranked().at(-1)];
  const { depth, text } = app.server;
  if (done || measured === depth) emit("measured");
  if (finding) at("finding").textContent = finding;
  else if (measured > 1) at("finding").textContent =
    `So far, layer ${least.layer} matters least (${interval(least)} nats/token) and layer ${most.layer} most (${signed(most.delta)}).`;
  at("progress").textContent = done ? `Measured on ${text.name}.` : `Measuring on ${text.name}: ${measured} of ${depth} layers, ${tokens} tokens`;
  if (done) at("try").replaceChildren(...[least, most].map(({ layer }) =>
    el("button", { type: "button", onclick: () => setPlan(without(layer), `Layer ${layer} skipped.`) }, `try without layer ${layer}`)));
}

/** Keep the state of the page in the fragment of its address. */
const saveState = debounce(300, () => {
  const { prompt, chat, new_tokens, temperature, seed } = settings();
  const text = at("text").value;
  const state = { plan: app.plan.plan, prompt, chat: chat ? 1 : 0, new_tokens, temperature, seed };
  if (text && text.length <= LINKED_TEXT) state.text = text;
  window.history.replaceState(null, "", `#${new URLSearchParams(state)}`);
});

function restoreState() {
  const state = new URLSearchParams(location.hash.slice(1));
  const fields = { prompt: "prompt", "new-tokens": "new_tokens", temperature: "temperature", seed: "seed", text: "text" };
  for (const [id, name] of Object.entries(fields)) if (state.has(name)) at(id).value = state.get(name);
  if (state.has("chat")) at("chat").checked = state.get("chat") === "1";
  if (state.get("text")) at("text-panel").open = true;
  return setPlan(state.get("plan") ?? `0-${app.server.depth - 1}`, "");
}

async function startPlay() {
  const { depth, prompt, chat, structure } = app.server;
  at("structure").textContent = structure;
  at("prompt").value = prompt;
  at("chat").checked = false;
  for (const start of [startPlan, startStrip, startColumns, startScore, startTake]) start();
  at("play").hidden = false;
  if (!(await restoreState())) await setPlan(`0-${depth - 1}`, "", true);
  on("plan", saveState);
  at("play").addEventListener("input", saveState);
  window.addEventListener("hashchange", restoreState);
  at("copy-link").addEventListener("click", (event) => copy(location.href, event.target));
  at("measure-text").addEventListener("click", () => measure(at("text").value));
  measure(null);
}

async function start() {
  try {
    app.server = await call("api/state");
  } catch (error) {
    if (error.status !== 401) showError("banner", error.status ? error : { message: "The server cannot be reached. Trying again." });
    if (error.status !== 401) setTimeout(start, 2000);
    return;
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
  if (!app.server || app.server.mode !== "play" || !at("banner").hidden) return;
  showError("banner", { message: "The server is not answering. Start it again; this page then goes on." });
  for (let isBack = false; !isBack; isBack = await call("api/state").then(() => true, () => false)) {
    await new Promise((resolve) => setTimeout(resolve, 1500));
  }
  at("banner").hidden = true;
  measure(null);
  setPlan(() => app.plan.plan, "");
});
at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(at("token").value.trim());
  at("token").value = "";
  start();
});
start();
