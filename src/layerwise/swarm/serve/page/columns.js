/** What the model writes: the original model on the left; on the right the plan, or two examples of one. */

import { cancel, stream } from "./api.js";
import { app, at, button, debounce, el, isIdentity, listen, muted, nats, on, plural, ranked, showError, without, write,
} from "./dom.js";
import { setPlan } from "./plan.js";

const STRONGEST = 4; // nats at which the shade of a token is strongest
let shown = ""; // what the columns show, or are about to show

export const settings = () => ({
  prompt: at("prompt").value, chat: at("chat").checked, new_tokens: Number(at("new_tokens").value) || 1,
  temperature: Number(at("temperature").value) || 0, seed: Number(at("seed").value) || 0,
});

/** Shade a token by how many nats less likely it is. */
export function shade(span, value, words) {
  const share = 50 * Math.min(1, Math.abs(value) / STRONGEST);
  span.style.background = `color-mix(in srgb, var(--${value > 0 ? "worse" : "better"}) ${share}%, transparent)`;
  span.title = words;
}

export function makePane(card, ...title) {
  const { prompt, chat } = settings();
  const [tokens, foot] = [el("span"), el("p", { class: "muted", role: "status" }, "waiting")];
  const text = el("p", { class: "tokens" }, muted(chat ? "" : prompt.slice(-300)), tokens);
  card.replaceChildren(el("h3", {}, ...title), text, foot);
  card.classList.add("running");
  return { card, tokens, foot };
}

function show({ card, tokens, foot }, { token, shades, end }, other) {
  if (token !== undefined) tokens.append(el("span", {}, token));
  shades?.forEach((value, index) => {
    const words = `${nats(Math.abs(value))} nats ${value > 0 ? "less" : "more"} likely under ${other}`;
    if (value !== null) shade(tokens.children[index], value, words);
  });
  if (!end) return;
  card.classList.remove("running");
  const pace = `${end.tokens_per_second.toFixed(1)} tokens/s · first token after ${end.first_token_ms.toFixed(0)} ms`;
  foot.textContent = `${plural(end.tokens, "token")} · ${end.cached ? "from the cache" : pace}`;
}

/** Return what the right column shows. The examples skip the layers that matter least and most. */
function targets() {
  const { plan } = app.plan;
  if (!isIdentity()) return [{ name: "the plan", plan, title: ["plan ", el("code", {}, plan)] }];
  const layers = app.layers.size < app.server.depth ? [] : [ranked()[0].layer, ranked().at(-1).layer];
  return layers.map((layer) => {
    const use = button("use this plan", () => setPlan(without(layer), `Layer ${layer} skipped.`), without(layer));
    const [name, title] = [`the plan without layer ${layer}`, [`for example, without layer ${layer}`, use]];
    return { name, plan: without(layer), title };
  });
}

async function generate() {
  const wanted = targets();
  const key = JSON.stringify([settings(), wanted]);
  if (key === shown) return;
  shown = key;
  const original = makePane(at("original"), "original model");
  const panes = wanted.map(({ title }) => makePane(el("article", { class: "card" }), ...title));
  const hint = muted("Skip a layer to see what the model writes without it.", "p");
  at("answers").replaceChildren(...panes.map(({ card }) => card), ...(wanted.length ? [] : [hint]));
  showError("generate-error", null);
  write("again", "stop");
  try {
    for (const [index, { plan, name }] of (wanted.length ? wanted : [app.plan]).entries()) {
      for await (const event of stream("api/generate", { plan, ...settings() })) {
        if (event.column === "plan") show(panes[index], event, "the original model");
        else if (event.column === "original" && !index) show(original, event, name);
      }
      if (key !== shown) return;
    }
  } catch (error) {
    showError("generate-error", error);
    shown = "";
  }
  showEnd();
}

function showEnd() {
  write("again", "run again");
  for (const card of document.querySelectorAll(".running")) card.classList.remove("running");
}

export function startColumns() {
  const { limits, chat, prompt, generates } = app.server;
  if (!generates) return;
  const regenerate = debounce(250, generate);
  Object.assign(at("prompt"), { value: prompt, maxLength: limits.prompt });
  at("new_tokens").max = limits.new_tokens;
  at("chat-label").hidden = !chat;
  listen("prompt-form", "input", regenerate);
  listen("prompt-form", "submit", (submitted) => {
    submitted.preventDefault();
    const isRunning = at("again").textContent === "stop";
    cancel("api/generate");
    showEnd();
    shown = "";
    if (!isRunning) generate();
  });
  for (const name of ["plan", "measured"]) on(name, regenerate);
}
