"""The loss of every token of a text under a plan."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from layerwise.data.batches import Batch
from layerwise.data.text.text_stream import TextStream
from layerwise.errors import MeasureError
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import score_tokens
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.plan import Plan
from layerwise.results.rows import Loss
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating


@dataclass(frozen=True, slots=True)
class TextScores:
    """The scores of a text.

    Attributes:
        losses: The loss of every window.
        tokens: Maps (document, window) to the loss in nats of the token that is predicted at each position.
        seconds: Time of all forward passes.
    """

    losses: list[Loss]
    tokens: dict[tuple[str, int], dict[int, float]]
    seconds: float

    @property
    def scored(self) -> int:
        """Number of scored tokens."""
        return sum(row.tokens for row in self.losses)

    @property
    def perplexity(self) -> float | None:
        """exp(sum of the losses / number of scored tokens); None if it exceeds the largest float."""
        nll = sum(row.nll for row in self.losses) / self.scored
        return math.exp(nll) if nll < math.log(sys.float_info.max) else None

    @property
    def tokens_per_second(self) -> float:
        return self.scored / self.seconds


def score_text(stack: Stack, plan: Plan, data: EvalData, check: Callable[[], None] = lambda: None) -> TextScores:
    """Score every token of `data` under `plan`.

    Args:
        stack: The model.
        plan: The plan to run.
        data: The text.
        check: Called after each layer. An exception that it raises ends the computation.

    Raises:
        MeasureError: If a loss is not finite.

    Example:
        >>> from layerwise import Corpus, load
        >>> from layerwise.measure.language.evaluation_data import tokenize
        >>> stack = load("demo")
        >>> scores = score_text(stack, Plan.parse("0-11"), tokenize(stack, Corpus.of(["def f(x): return x"])))
        >>> len(scores.tokens["0", 0]) == scores.scored
        True
    """
    losses: list[Loss] = []
    tokens: dict[tuple[str, int], dict[int, float]] = {}
    began = time.perf_counter()
    with evaluating(stack.model), torch.inference_mode():
        for batch in data.batches:
            assert isinstance(batch, Batch), "a text has no labels"
            captured = stack.capture(**batch.inputs)
            state = captured.state
            for state in stack.states(plan, captured):  # noqa: B007  (the last state is scored)
                check()
            rows, columns, nll, hits = score_tokens(stack, state, batch)
            values, hits = to_float64_cpu(nll), hits.cpu()
            for number, window in enumerate(batch.windows):
                chosen = rows == number
                by_token = dict(zip(columns[chosen].tolist(), values[chosen].tolist(), strict=True))
                total, right = sum(by_token.values()), int(hits[chosen].sum())
                if not math.isfinite(total):
                    raise MeasureError(
                        f"Losses must be finite, got NaN or infinity for {plan}. Use other layers or --dtype float32."
                    )
                tokens[window.document, window.index] = by_token
                key = (str(plan), window.task, window.document, window.index)
                losses.append(Loss(*key, total, len(by_token), right))
    return TextScores(losses, tokens, time.perf_counter() - began)


ScoredToken: TypeAlias = tuple[str, list[float | None]]
"""The text of a token, and its loss under each of several plans; None if it is not scored."""


def list_tokens(tokenizer: Any, data: EvalData, scores: Sequence[TextScores]) -> list[ScoredToken]:
    """Return the tokens of all documents in order, with their losses.

    The documents must have numbers as ids, as those of `Corpus.of`; an empty line separates them.
    """
    tokens: list[ScoredToken] = []
    offset = 0 if data.objective == "masked_token" else 1  # a causal model predicts the next token
    for window in sorted(data.windows, key=lambda each: (int(each.document), each.index)):
        if window.index == 0 and tokens:
            tokens.append(("\n\n", [None for _ in scores]))
        key, text = (window.document, window.index), TextStream(tokenizer)
        # A window after the first one begins with tokens of the one before it.
        for position in range(window.scored_from if window.index else 0, len(window.ids)):
            losses = [each.tokens[key].get(position - offset) for each in scores]
            tokens.append((text.add(window.ids[position]), losses))
        last, losses = tokens[-1]
        tokens[-1] = (last + text.finish(), losses)
    return tokens
