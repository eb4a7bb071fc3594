"""A text under the original model and under a plan: the loss of every token, and what the difference means."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.token_scores import TextScores, score_text
from layerwise.measure.stats.effects import compute_effects
from layerwise.measure.stats.grid import MIN_UNITS
from layerwise.plan import Plan
from layerwise.results import Score
from layerwise.results.vocabulary import DELTA, EFFECT
from layerwise.stack import Stack
from layerwise.studies.play.worker import Item, Job
from layerwise.swarm.text_stream import TextStream

MAX_CACHED = 4
"""Number of texts whose scores by the original model are kept."""


class Scorer:
    """Scores texts; the scores of the original model are cached."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._identity = Plan.identity(stack.depth)
        self._cache: OrderedDict[str, TextScores] = OrderedDict()

    def compare(self, job: Job, plan: Plan, data: EvalData, sizes: Item) -> None:
        """Emit the loss of every token of `data` under both, and the difference with its interval."""
        job.emit({"stage": "original"})
        original = self._cache.get(data.digest)
        if original is None:
            original = self._cache[data.digest] = score_text(self._stack, self._identity, data, job.check)
            if len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
        job.emit({"stage": "plan"})
        changed = original if plan == self._identity else score_text(self._stack, plan, data, job.check)
        both = {"original": original, "plan": changed}
        difference = self._compare_losses(plan, original, changed)
        result = {
            "tokens": list_tokens(self._stack.tokenizer, data, original, changed),
            "difference": {
                "delta": difference.value,
                "low": difference.low,
                "high": difference.high,
                "documents": data.documents,
                "tokens": data.tokens,
            },
            "finding": state_difference(difference, data),
            "perplexity": {name: _finite(scores.perplexity) for name, scores in both.items()},
            "tokens_per_second": {name: scores.scored / scores.seconds for name, scores in both.items()},
            **sizes,
        }
        job.emit({"result": result})

    def _compare_losses(self, plan: Plan, original: TextScores, changed: TextScores) -> Score:
        if plan == self._identity:
            return Score(EFFECT, DELTA, 0.0, 0.0, 0.0)
        effects = compute_effects([*original.losses, *changed.losses], str(self._identity))
        return next(score for score in effects if score.metric == DELTA)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def state_difference(difference: Score, data: EvalData) -> str:
    """State what the change of the loss on a text means; without an interval nothing is concluded."""
    delta, low, high = difference.value, difference.low, difference.high
    if low is None or high is None:
        needed = math.ceil(MIN_UNITS * data.tokens / max(1, data.units))
        return (
            f"The loss changes by {delta:+.3g} nats/token, but the text is too short to tell: an interval needs "
            f"{MIN_UNITS} paragraphs (about {needed:,} tokens)."
        )
    if low == high == 0:
        return "The plan computes the same losses."
    interval = f"{delta:+.3g} [{low:.3g}, {high:.3g}] nats/token"
    if low <= 0 <= high:
        # The text on which a change of this size is detected with 80 % power.
        factor = max(1.5, ((difference.mde or 0.0) / max(abs(delta), 1e-3)) ** 2)
        tokens = round(data.tokens * factor, -2)
        return f"Inconclusive: {interval}. The text is too short to tell (about {tokens:,.0f} tokens would do)."
    return f"The plan {'increases' if delta > 0 else 'reduces'} the loss: {interval}."


def list_tokens(tokenizer: Any, data: EvalData, original: TextScores, changed: TextScores) -> list[Item]:
    """Return the tokens of a text in order, with their loss under both; tokens that are not scored have None."""
    items: list[Item] = []
    offset = 0 if data.objective == "masked_token" else 1  # a causal model predicts the next token
    for window in sorted(data.windows, key=lambda each: (int(each.document), each.index)):
        key = (window.document, window.index)
        if window.index == 0 and items:
            items.append({"text": "\n\n", "original": None, "plan": None})
        text = TextStream(tokenizer)
        # A window after the first one begins with tokens of the one before it.
        for position in range(window.scored_from if window.index else 0, len(window.ids)):
            losses = [scores.tokens[key].get(position - offset) for scores in (original, changed)]
            items.append({"text": text.add(window.ids[position]), "original": losses[0], "plan": losses[1]})
        items[-1]["text"] += text.finish()
    return items


def describe_importance(scores: Mapping[int, Score], layers: Iterable[int], depth: int) -> Item:
    """Return an event with the loss increases of some layers, the number that have an interval, and the finding."""
    names = ("low", "high", "documents", "tokens")
    rows = [
        {"layer": layer, "delta": scores[layer].value, **{name: getattr(scores[layer], name) for name in names}}
        for layer in layers
    ]
    measured = sum(score.low is not None for score in scores.values())
    return {"layers": rows, "measured": measured, "finding": _state_extremes(scores) if measured == depth else None}


def _state_extremes(scores: Mapping[int, Score]) -> str:
    order: Sequence[int] = sorted(scores, key=lambda layer: scores[layer].value)
    least, most = scores[order[0]], scores[order[-1]]
    is_detected = (least.low or 0.0) > 0
    cheapest = f"Layer {order[0]} {'costs least' if is_detected else 'makes no detected difference'} when skipped"
    dearest = f"layer {order[-1]} costs most when skipped"
    return f"{cheapest}: {_format(least)}; {dearest}: {_format(most)}.".replace("-", "−")


def _format(score: Score) -> str:
    return f"{score.value:+.3g} [{score.low:.3g}, {score.high:.3g}] nats/token"
