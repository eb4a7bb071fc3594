"""The loss increase when each layer is skipped, measured in rounds: the most uncertain layers get more text first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from layerwise.measure.interventions.sweep import CostEstimate, CostMeter, sweep
from layerwise.measure.language.evaluation_data import EvalData, piece_lengths, select_pieces
from layerwise.measure.stats.effects import POOLED, compute_effects
from layerwise.measure.stats.grid import MIN_UNITS, shuffle_pieces
from layerwise.plan import Plan, families
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import DELTA, EFFECT
from layerwise.stack import Stack

MIN_PER_TASK = 4
"""Minimum documents of a task in a round."""

REFINED = 4
"""Number of layers that are measured on more text in a round: those with the widest intervals."""

RESAMPLES = 10_000
INTERIM_RESAMPLES = 2_000
"""Bootstrap resamples at the end, and before all layers have read all of the text."""


@dataclass
class ProgressiveImportance:
    """Loss increases of a model on one text, which can be read while they become more precise.

    Effects and intervals are those of `compute_effects` on the text on which a layer has been measured so far. At the
    end, they are the effects of a sweep over `leave_one_out`.

    Attributes:
        stack: The model.
        data: The text.
        scores: The latest effect of skipping each layer, in nats/token; effects that are given are not measured.
        is_complete: Whether the scores are those of all of the text. Other threads should read it before the scores.

    Example:
        >>> from layerwise import demo_corpus, load
        >>> from layerwise.measure.language.evaluation_data import tokenize
        >>> stack = load("demo")
        >>> importance = ProgressiveImportance(stack, tokenize(stack, demo_corpus(texts=8, questions=4)))
        >>> importance.measure_round()
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
        >>> importance.scores[0].value > importance.scores[2].value
        True
    """

    stack: Stack
    data: EvalData
    scores: dict[int, Score] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._losses: dict[str, dict[tuple[str, str, int], Loss]] = {}
        self._plans = [str(member.plan) for member in families.leave_one_out(self.stack.depth)]
        self._identity = str(Plan.identity(self.stack.depth))
        size = max(MIN_UNITS, MIN_PER_TASK * len({window.task for window in self.data.windows}))
        order = shuffle_pieces(piece_lengths(self.data), seed=0)
        # The last round takes the rest, so that none has too few documents.
        starts = range(0, max(1, len(order) - size + 1), size)
        parts = (order[start:end] for start, end in pairwise((*starts, len(order))))
        self._rounds = [select_pieces(self.data, part) for part in parts]
        self._read = dict.fromkeys(range(self.stack.depth), 0)
        self.is_complete = bool(self.scores)

    @property
    def measured_plans(self) -> tuple[str, ...]:
        """Plans with at least one loss."""
        return tuple(self._losses)

    def measure_round(self, check: Callable[[], None] = lambda: None) -> list[int]:
        """Measure some layers on the next part of the text, and return the layers whose effects changed.

        `check` is called between two forward passes. If it raises an exception, the next call continues this round
        and does not repeat completed measurements.
        """
        if self.is_complete:
            return list(self._read)
        layers = self._choose_layers()
        part = self._rounds[self._read[layers[0]]]

        def progress(spent: CostMeter, due: CostEstimate) -> None:
            check()

        plans = [self._plans[layer] for layer in layers]
        sweep(self.stack, plans, part, sink=self._store, finished=self._finished, progress=progress)
        for layer in layers:
            self._read[layer] += 1
        is_last = min(self._read.values()) == len(self._rounds)
        changed = list(self._read) if is_last else layers
        self._estimate(changed, is_last)
        self.is_complete = is_last
        return changed

    def _choose_layers(self) -> list[int]:
        """Return layers to measure on the same part of the text: all at first, then those with the widest intervals."""
        unread = [layer for layer, parts in self._read.items() if parts == 0]
        if unread:
            return unread
        left = [layer for layer, parts in self._read.items() if parts < len(self._rounds)]
        widest = sorted(left, key=self._width, reverse=True)
        return [layer for layer in widest if self._read[layer] == self._read[widest[0]]][:REFINED]

    def _width(self, layer: int) -> float:
        score = self.scores[layer]
        return float("inf") if score.low is None or score.high is None else score.high - score.low

    def _store(self, rows: Sequence[Loss]) -> None:
        for row in rows:
            self._losses.setdefault(row.plan, {})[row.task, row.document, row.window] = row

    def _finished(self, task: str, document: str, window: int) -> frozenset[str]:
        return frozenset(plan for plan, losses in self._losses.items() if (task, document, window) in losses)

    def _estimate(self, layers: Sequence[int], is_last: bool) -> None:
        for parts in {self._read[layer] for layer in layers}:
            group = [layer for layer in layers if self._read[layer] == parts]
            windows = self._losses[self._plans[group[0]]]
            rows = [self._losses[self._identity][window] for window in windows]
            rows += [loss for layer in group for loss in self._losses[self._plans[layer]].values()]
            resamples = RESAMPLES if is_last else INTERIM_RESAMPLES
            effects = compute_effects(rows, self._identity, by_task=is_last, resamples=resamples)
            # A new dictionary, since other threads may read the old one.
            self.scores = {**self.scores, **read_skipping_effects(effects, self.stack.depth)}


def read_skipping_effects(scores: Iterable[Score], depth: int) -> dict[int, Score]:
    """Map each layer to the effect of skipping it on all of the text, given the scores of a sweep."""
    rows = [score for score in scores if score.measure == EFFECT and score.metric == DELTA]
    tasks = {score.task for score in rows}
    task = POOLED if POOLED in tasks else min(tasks, default=POOLED)
    effects = {score.plan: score for score in rows if score.task == task}
    plans = (str(member.plan) for member in families.leave_one_out(depth))
    return {layer: effects[plan] for layer, plan in enumerate(plans) if plan in effects}
