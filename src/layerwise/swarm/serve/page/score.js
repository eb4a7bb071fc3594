/** What the plan loses on a pasted text: loss per token, the difference with its interval, and costs. */

import { cancel, stream } from "./api.js";
import { shade } from "./columns.js";
import { app, at, change, count, debounce, el, listen, nats, on, plural, say, signed, write } from "./dom.js";
import { SIZES } from "./plan.js";

const ROWS = [["perplexity", "perplexity", (value) => value?.toFixed(1) ?? "above 1e308"],
  ["tokens/s", "tokens_per_second", (value) => count(Math.round(value))], ...SIZES];

function show({ tokens, difference, finding, ...costs }) {
  at("score").hidden = false;
  at("score").classList.remove("stale");
  say(write("score-finding", finding));
  write("score-state", `${plural(difference.tokens, "token")} in ${plural(difference.documents, "document")}`);
  at("scored").replaceChildren(...tokens.map(({ text, original, plan }) => {
    const span = el("span", {}, text);
    const words = () => `${nats(original)} nats under the original model, ${nats(plan)} under the plan`;
    if (original !== null) shade(span, plan - original, `${words()}: ${signed(plan - original)}`);
    return span;
  }));
  at("score-table").replaceChildren(...ROWS.map(([name, key, format = count]) => {
    const { original, plan } = costs[key];
    const relative = original === null || plan === null ? "" : change(original, plan) || "same";
    const values = [format(original), format(plan), relative];
    return el("tr", {}, el("th", { scope: "row" }, name), ...values.map((value) => el("td", {}, value)));
  }));
}

async function score() {
  const text = at("text").value;
  at("measure-text").disabled = !text.trim();
  cancel("api/score");
  if (!text.trim() || !at("text-panel").open) return;
  at("score").classList.add("stale");
  try {
    for await (const { stage, result } of stream("api/score", { plan: app.plan.plan, text })) {
      if (stage) write("score-state", `running the ${stage === "plan" ? "plan" : "original model"} …`);
      if (result) show(result);
    }
  } catch ({ message }) {
    write("score-state", message);
  }
}

export function startScore() {
  const rescore = debounce(400, score);
  at("text").maxLength = app.server.limits.text;
  listen("text", "input", rescore);
  listen("text-panel", "toggle", rescore);
  on("plan", rescore);
}
