/** What the plan loses on a pasted text: loss per token, the difference with its interval, and costs. */

import { latest, stream } from "./api.js";
import { shade } from "./columns.js";
import { app, at, bytes, change, count, debounce, el, nats, on, plural, quantity, showError, signed } from "./dom.js";

const FULL = 4; // nats at which the heat line is strongest
const scoring = latest();

function showResult({ tokens, difference, finding, ...costs }) {
  at("score").hidden = false;
  at("score").classList.remove("stale");
  at("score-finding").textContent = finding;
  at("score-state").textContent = `${plural(difference.tokens, "token")} in ${plural(difference.documents, "document")}`;
  const spans = tokens.map(({ text, original, plan }) => {
    const span = el("span", {}, text);
    if (original === null) return span;
    const words = `${nats(original)} nats under the original model, ${nats(plan)} under the plan`;
    shade(span, plan - original, `${words}: ${signed(plan - original)}`);
    return span;
  });
  at("tokens").replaceChildren(...spans);
  drawHeat(tokens, spans);
  const rows = [["perplexity", "perplexity", (value) => value.toFixed(1)], ["tokens/s", "tokens_per_second", (value) => count(Math.round(value))],
    ["parameters", "parameters", quantity], ["KV slots", "slots", count], ["weights", "bytes", bytes]];
  const lines = rows.map(([name, key, format]) => {
    const { original, plan } = costs[key];
    const values = [format(original), format(plan), original === plan ? "same" : change(original, plan)];
    return el("tr", {}, el("th", { scope: "row" }, name), ...values.map((value) => el("td", {}, value)));
  });
  const head = ["", "original model", "plan", "change"].map((name) => el("th", { scope: "col" }, name));
  at("score-table").replaceChildren(el("tr", {}, ...head), ...lines);
}

/** Draw one column for each token; a click scrolls to the token. */
function drawHeat(tokens, spans) {
  const canvas = at("heat");
  canvas.width = tokens.length;
  const [drawing, style] = [canvas.getContext("2d"), getComputedStyle(canvas)];
  tokens.forEach(({ original, plan }, index) => {
    drawing.globalAlpha = Math.min(1, Math.abs(plan - original) / FULL);
    drawing.fillStyle = style.getPropertyValue(plan > original ? "--worse" : "--better");
    drawing.fillRect(index, 0, 1, 1);
  });
  canvas.onclick = ({ offsetX }) => {
    const span = spans[Math.floor((offsetX / canvas.clientWidth) * spans.length)];
    at("tokens").scrollTo({ top: span.offsetTop - at("tokens").offsetTop - 40 });
  };
}

async function score() {
  const text = at("text").value;
  at("measure-text").disabled = !text.trim();
  scoring.cancel();
  if (!text.trim() || !at("text-panel").open) return;
  showError("score-error", null);
  at("score").classList.add("stale");
  await scoring(async (signal) => {
    for await (const { stage, result } of stream("api/score", { plan: app.plan.plan, text }, signal)) {
      if (stage) at("score-state").textContent = `running the ${stage === "plan" ? "plan" : "original model"} …`;
      if (result) showResult(result);
    }
  }).catch((error) => showError("score-error", error));
}

export function startScore() {
  const rescore = debounce(400, score);
  at("text").maxLength = app.server.limits.text;
  at("text").addEventListener("input", rescore);
  at("text-panel").addEventListener("toggle", rescore);
  on("plan", rescore);
}
