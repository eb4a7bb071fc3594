/** What the model writes: the original model on the left, the plan, or two examples of one, on the right. */

import { latest, stream } from "./api.js";
import { app, at, debounce, el, isIdentity, minus, nats, on, ranked, showError, without } from "./dom.js";
import { setPlan } from "./plan.js";

const run = latest();
let shown = ""; // what the columns show or are about to show

export const settings = () => ({
  prompt: at("prompt").value, chat: at("chat").checked, seed: Number(at("seed").value) || 0,
  new_tokens: Number(at("new-tokens").value) || 1, temperature: Number(at("temperature").value) || 0,
});

/** Shade a token by how much less likely one of the models finds it. */
export function shade(span, value, words) {
  if (value === null) return;
  const tone = value > 0 ? "worse" : "better";
  span.style.background = `color-mix(in srgb, var(--${tone}) ${Math.round(Math.min(1, Math.abs(value) / 4) * 65)}%, transparent)`;
  span.title = words ?? `${nats(Math.abs(value))} nats ${value > 0 ? "less" : "more"} likely`;
}

function pane(card, title, ...more) {
  const made = { card, tokens: el("span"), foot: el("p", { class: "muted" }, "…") };
  const { prompt, chat } = settings();
  const start = chat ? "" : `${prompt.length > 300 ? "…" : ""}${prompt.slice(-300)}`;
  card.replaceChildren(el("h3", {}, title, ...more), el("p", { class: "tokens" }, el("span", { class: "muted" }, start), made.tokens), made.foot);
  card.classList.add("running");
  return made;
}

function show({ card, tokens, foot }, event, other) {
  if ("token" in event) tokens.append(el("span", {}, event.token));
  event.shades?.forEach((value, index) => tokens.children[index]
    && shade(tokens.children[index], value, `${minus(nats(Math.abs(value)))} nats ${value > 0 ? "less" : "more"} likely under ${other}`));
  if (!event.end) return;
  card.classList.remove("running");
  const { tokens: made, first_token_ms: first, tokens_per_second: pace, cached } = event.end;
  foot.textContent = `${made} tokens · ${cached ? "from the cache" : `${pace.toFixed(1)} tokens/s · first token after ${first.toFixed(0)} ms`}`;
}

/** Return what the right column shows: the plan, or examples while the plan is the original model. */
function targets() {
  if (!isIdentity()) return [{ title: app.plan.plan, plan: app.plan.plan }];
  if (app.layers.size < app.server.depth) return [];
  return [ranked()[0], ranked().at(-1)].map(({ layer }) => ({ title: `without layer ${layer}`, plan: without(layer), isExample: true }));
}

async function generate() {
  const wanted = targets();
  const key = JSON.stringify([settings(), wanted]);
  if (key === shown) return;
  shown = key;
  const original = pane(at("original"), "original model");
  const panes = wanted.map(({ title, plan, isExample }) => {
    const use = isExample && el("button", { type: "button", onclick: () => setPlan(plan, "") }, "use this plan");
    return pane(el("article", { class: "card answer" }), isExample ? "" : "plan ", isExample ? title : el("code", {}, title), use || "");
  });
  const hint = el("article", { class: "card answer muted" }, "Skip a layer to see what the model writes without it.");
  at("answers").replaceChildren(...(panes.length ? panes.map((each) => each.card) : [hint]));
  showError("generate-error", null);
  at("again").textContent = "stop";
  const plans = wanted.length ? wanted.map(({ plan }) => plan) : [app.plan.plan];
  const done = await run(async (signal) => {
    for (const [index, plan] of plans.entries()) {
      for await (const event of stream("api/generate", { plan, ...settings() }, signal)) {
        if (event.column === "original" && !index) show(original, event, panes.length > 1 ? wanted[0].title.replace("without", "the plan without") : "the plan");
        else if (event.column === "plan") show(panes[index], event, "the original model");
      }
    }
  }).catch((error) => (shown = "", showError("generate-error", error), true));
  if (done) at("again").textContent = "run again";
}

export const regenerate = debounce(250, generate);

export function startColumns() {
  at("prompt").maxLength = app.server.limits.prompt;
  at("new-tokens").max = app.server.limits.new_tokens;
  at("chat-toggle").hidden = !app.server.chat;
  for (const id of ["prompt", "chat", "new-tokens", "temperature", "seed"]) at(id).addEventListener("input", regenerate);
  at("again").addEventListener("click", () => {
    const isRunning = at("again").textContent === "stop";
    run.cancel();
    for (const card of document.querySelectorAll(".running")) card.classList.remove("running");
    at("again").textContent = "run again";
    if (!isRunning) shown = "", generate();
  });
  on("plan", regenerate);
  on("measured", regenerate);
}
