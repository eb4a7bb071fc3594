/** What the plan loses on a pasted text: loss per token, the difference with its interval, and costs. */

import { latest, stream } from "./api.js";
import { shade } from "./columns.js";
import { app, at, compare, debounce, el, nats, on, plural, quantity, showError, signed } from "./dom.js";

const run = latest();

function showResult({ tokens, difference, finding, ...costs }) {
  at("score").hidden = false;
  at("score-finding").textContent = finding;
  const spans = tokens.map(({ text, original, plan }) => {
    const span = el("span", {}, text);
    const change = original === null ? null : plan - original;
    shade(span, change, change === null ? "" : `${nats(original)} under the original model, ${nats(plan)} under the plan: ${signed(change)} nats`);
    return span;
  });
  at("tokens").replaceChildren(...spans);
  drawHeat(tokens, spans);
  const rows = [["perplexity", "perplexity", (value) => value.toFixed(1)], ["tokens/s", "tokens_per_second", quantity],
    ["parameters", "parameters", quantity], ["KV slots", "slots"], ["weights", "bytes", (value) => quantity(value, "B")]];
  compare(at("score-table"), rows.map(([name, key, format]) => [name, costs[key].original, costs[key].plan, format]));
  at("score-state").textContent = `${plural(difference.tokens, "token")} in ${plural(difference.documents, "document")}`;
}

/** One column for each token; a click scrolls to the token. */
function drawHeat(tokens, spans) {
  const canvas = at("heat");
  canvas.width = tokens.length;
  const paint = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  tokens.forEach(({ original, plan }, index) => {
    const change = original === null ? 0 : plan - original;
    paint.globalAlpha = Math.min(1, Math.abs(change) / 4);
    paint.fillStyle = style.getPropertyValue(change > 0 ? "--worse" : "--better");
    paint.fillRect(index, 0, 1, canvas.height);
  });
  canvas.onclick = (event) => spans[Math.floor((event.offsetX / canvas.clientWidth) * spans.length)]?.scrollIntoView({ block: "nearest" });
}

const score = debounce(400, async () => {
  const text = at("text").value;
  at("measure-text").disabled = !text.trim();
  if (!text.trim() || !at("text-panel").open) return run.cancel();
  showError("score-error", null);
  at("score").classList.add("stale");
  await run(async (signal) => {
    for await (const event of stream("api/score", { plan: app.plan.plan, text }, signal)) {
      if (event.stage) at("score-state").textContent = `running the ${event.stage === "plan" ? "plan" : "original model"} …`;
      if (event.result) showResult(event.result), at("score").classList.remove("stale");
    }
  }).catch((error) => showError("score-error", error));
});

export function startScore() {
  at("text").maxLength = app.server.limits.text;
  at("text").addEventListener("input", score);
  at("text-panel").addEventListener("toggle", score);
  on("plan", score);
}
