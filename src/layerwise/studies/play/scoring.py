"""A text under the original model and under a plan: the loss of every token, and the difference."""

from __future__ import annotations

from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.token_scores import TextScores, list_tokens, score_text
from layerwise.measure.stats.effects import compute_effects
from layerwise.plan import Plan
from layerwise.results import Score
from layerwise.results.vocabulary import DELTA, EFFECT
from layerwise.stack import Stack
from layerwise.studies.play.findings import state_difference
from layerwise.studies.play.worker import Item, Job

MAX_CACHED = 4
"""Number of texts whose scores by the original model are kept."""


class Scorer:
    """Scores texts; the scores of the original model are cached."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._identity = Plan.identity(stack.depth)
        self._cache: dict[str, TextScores] = {}

    def compare(self, job: Job, plan: Plan, data: EvalData, sizes: Item) -> None:
        """Emit the loss of every token of `data` under both, and the difference with its interval."""
        job.emit({"stage": "original"})
        original = self._cache.get(data.digest)
        if original is None:
            original = score_text(self._stack, self._identity, data, job.check)
            if len(self._cache) == MAX_CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[data.digest] = original
        job.emit({"stage": "plan"})
        if plan == self._identity:
            changed = original
            difference = Score(EFFECT, DELTA, 0.0, 0.0, 0.0, documents=data.documents, tokens=data.tokens)
        else:
            changed = score_text(self._stack, plan, data, job.check)
            effects = compute_effects([*original.losses, *changed.losses], str(self._identity))
            difference = next(score for score in effects if score.metric == DELTA)
        both = {"original": original, "plan": changed}
        tokens = list_tokens(self._stack.tokenizer, data, (original, changed))
        result = {
            "tokens": [{"text": text, "original": before, "plan": after} for text, (before, after) in tokens],
            "difference": describe_effect(difference),
            "finding": state_difference(difference, data),
            "perplexity": {name: scores.perplexity for name, scores in both.items()},
            "tokens_per_second": {name: scores.tokens_per_second for name, scores in both.items()},
            **sizes,
        }
        job.emit({"result": result})


def describe_effect(score: Score) -> Item:
    names = ("low", "high", "documents", "tokens")
    return {"delta": score.value, **{name: getattr(score, name) for name in names}}
