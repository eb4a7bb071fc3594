"""Race layers: skip each on more and more text, and stop evaluating a layer once its verdict is conclusive.

A look is one interim test: text is added, and every layer still in the race is tested on all text read so far. The
probability of any wrong decision at any look is below 5 %. This error rate is divided over decisions (`ERROR_SHARES`,
one-sided), over looks (each spends the fraction `SPENDING` of the rest, the last look all of it; Maron and Moore 1994)
and over layers (Holm 1979). `no_effect` and `harmful` are decided only after even a rare kind of document (`RARE`) has
probably been read. A layer found to be harmful is tested again on later documents. A layer also leaves the race if more
text is unlikely to be conclusive (`FUTILE`; Spiegelhalter et al. 1986).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from layerwise.data.batches import regroup_batches
from layerwise.data.text.tokens import Window
from layerwise.measure.interventions.ablation import skip_interventions, skip_keys
from layerwise.measure.interventions.intervention import ResultCache, intervention_losses
from layerwise.measure.language.evaluation_data import EvalData, piece_lengths, select_pieces, shorten
from layerwise.measure.stats.estimate import SampleEstimate
from layerwise.measure.stats.grid import (
    MIN_DOCUMENTS,
    MIN_UNITS,
    WHOLE,
    Grid,
    Piece,
    Strata,
    StratifiedSample,
    StratumPart,
    arrange,
    combine_strata,
    shuffle_pieces,
    stratum_parts,
)
from layerwise.measure.stats.statistics import ALPHA
from layerwise.measure.stats.verdicts import (
    SELECTION,
    Decision,
    detectable_effect,
    is_negligible,
    refuse_too_little,
    settle,
)
from layerwise.plan import Plan
from layerwise.plan.schedule.allocation import MIN_EFFECT
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import RACING
from layerwise.stack import Stack


def racing(
    stack: Stack,
    data: EvalData,
    *,
    beginning: int,
    seed: int = 0,
    margin: float = MIN_EFFECT,
    cache: ResultCache[Loss] | None = None,
) -> list[Score]:
    """Race the layers of `stack` on `data`.

    If there are at least 16 documents, only `beginning` tokens of one window of each are scored. The rest adds little
    information, because losses within a document are correlated. `margin` is the smallest effect that counts, in
    nats/token.

    Returns:
        One row per layer with the decision, effect, simultaneous interval, minimum detectable effect, documents and
        tokens. Further rows have the cost of the race (`evaluations`) and of skipping every layer on all of the text
        (`evaluations_full`), in layer evaluations times tokens, their ratio (`share`), and the number of `looks`.

    Raises:
        MeasureError: If the text is too short.
    """
    cache = cache or ResultCache()
    candidates = skip_interventions(stack.depth)
    few = data.documents < MIN_DOCUMENTS
    short, full_lengths = (data, piece_lengths(data)) if few else cut_beginnings(data, beginning, seed)

    def measure(layers: Collection[int], text: Sequence[Piece]) -> list[Loss]:
        return intervention_losses(stack, [candidates[layer] for layer in layers], select_pieces(short, text), cache)

    return race_rows(
        race(measure, skip_keys(stack.depth), piece_lengths(short), full_lengths=full_lengths, seed=seed, margin=margin)
    )


def cut_beginnings(data: EvalData, tokens: int, seed: int = 0) -> tuple[EvalData, dict[Piece, int]]:
    cut = shorten(data, tokens)
    documents: dict[tuple[str, str], list[Window]] = {}
    for window in data.windows:
        documents.setdefault((window.task, window.document), []).append(window)
    selected = []
    full_lengths: dict[Piece, int] = {}
    for task, document in sorted(documents):
        windows = sorted(documents[task, document], key=lambda window: window.index)
        drawn = random.Random(f"{seed}/{task}/{document}").choice(windows)
        selected.append(drawn)
        full_lengths[task, cut.get(drawn, drawn).document, WHOLE] = sum(window.scored for window in windows)
    return replace(data, batches=regroup_batches(data.batches, selected, cut)), full_lengths


FIRST_LOOK = 32
"""Documents at the first look. With fewer, Student t intervals are unreliable at the small levels of a race."""

MIN_STRATUM_DOCUMENTS = 6
"""Minimum number of documents per stratum at the first look. If there are too many strata, the smallest are merged."""

GROWTH = 0.25
"""Tokens added per look, as a fraction of the tokens read before."""

SPENDING = 0.3
"""Fraction of the remaining error rate that a look spends."""

ERROR_SHARES: Mapping[Decision, float] = {"matters": 0.7, "no_effect": 0.2, "harmful": 0.1}
"""Fraction of the error rate that each decision gets."""

RARE = 0.04
"""`no_effect` and `harmful` need so much text that it probably includes a kind of document with this frequency."""

FUTILE = 0.35
"""Predictive power below which a layer leaves the race."""

MeasureLosses = Callable[[Collection[int], Sequence[Piece]], list[Loss]]
"""Returns the losses of the original model, and of skipping each given layer, on the given documents or windows."""


@dataclass(frozen=True, slots=True)
class LayerOutcome:
    """The decision on one layer, its effect, the minimum detectable effect (`limit`), and how much text was read."""

    decision: Decision
    effect: SampleEstimate[float]
    limit: float
    documents: int
    tokens: int


def race(
    measure: MeasureLosses,
    keys: Mapping[int, str],
    lengths: Mapping[Piece, int],
    *,
    full_lengths: Mapping[Piece, int] | None = None,
    seed: int = 0,
    margin: float = MIN_EFFECT,
) -> Race:
    """Race layers: measure all of them on some text, then those without a verdict on more text, and so on.

    `keys` has the plan name of the losses of each layer, and `lengths` the number of scored tokens of each piece of
    text, a document or window. If pieces are only the beginnings of documents, `full_lengths` has the scored tokens of
    the full documents.
    """
    full_lengths = full_lengths or lengths
    strata = Strata.from_lengths(full_lengths).at_most(FIRST_LOOK // MIN_STRATUM_DOCUMENTS)
    sample = StratifiedSample.from_order(shuffle_pieces(lengths, seed), lengths, strata)
    running = Race(measure, keys, lengths, full_lengths, strata, margin, sample)
    added = sample.take_first(FIRST_LOOK)
    while added:
        running.look(added)
        added = sample.take_more(math.ceil(GROWTH * sample.tokens), running.variances) if running.remaining else []
    running.stop()
    return running


def race_rows(result: Race) -> list[Score]:
    scores = []
    for layer, finish in sorted(result.finishes.items()):
        columns: dict[str, Any] = {"layer": layer, "documents": finish.documents, "tokens": finish.tokens}
        scores.append(Score(RACING, finish.decision, *finish.effect.row(), mde=finish.limit, **columns))
    figures = {
        "evaluations": result.spent,
        "evaluations_full": result.full,
        "share": result.spent / result.full,
        "looks": result.looks,
    }
    return [*scores, *(Score(RACING, name, float(value)) for name, value in figures.items())]


def rare_documents(layers: int) -> int:
    """Return the number of documents to read so that a rare kind of document is unlikely to be missed.

    If 4 % of all documents are of this kind, the probability of missing it is at most 0.05 / (2 * `layers`).

    >>> rare_documents(12), rare_documents(30)
    (152, 174)
    """
    return math.ceil(math.log(ALPHA / (2 * layers)) / math.log(1 - RARE))


@dataclass
class Race:
    """The state of a race; `finishes` has the outcome of every layer that has left it.

    `spent` is the cost of the race in layer evaluations times tokens, and `full` the cost of skipping every layer on
    all of the text. `losses` has one list per interim test (look). `candidates` maps layers that may be harmful to the
    look that found them; only the losses of later looks can confirm that they are. `unspent` is the remaining fraction
    of the error rate, and `rate` the fraction that the current look spends.
    """

    measure: MeasureLosses
    keys: Mapping[int, str]
    lengths: Mapping[Piece, int]
    full_lengths: Mapping[Piece, int]
    strata: Strata
    margin: float
    sample: StratifiedSample
    losses: list[list[Loss]] = field(default_factory=list)
    candidates: dict[int, int] = field(default_factory=dict)
    finishes: dict[int, LayerOutcome] = field(default_factory=dict)
    variances: dict[str, float] = field(default_factory=dict)
    spent: int = 0
    unspent: float = 1.0
    rate: float = 1.0

    def __post_init__(self) -> None:
        self.depth = len(self.keys)
        self.baseline = str(Plan.identity(self.depth))

    @property
    def looks(self) -> int:
        return len(self.losses)

    @property
    def full(self) -> int:
        return sum(self.full_lengths.values()) * _evaluations(self.keys, self.depth)

    @property
    def remaining(self) -> list[int]:
        return [layer for layer in self.keys if layer not in self.finishes]

    def comparisons(self, decision: Decision) -> float:
        """Return the number by which `ALPHA` is divided in one-sided tests for `decision` at this look (Holm 1979)."""
        decided = sum(finish.decision == decision for finish in self.finishes.values())
        return max(1, self.depth - decided) / (self.rate * ERROR_SHARES[decision])

    def look(self, added: Sequence[Piece]) -> None:
        running = self.remaining
        self.losses.append(self.measure(running, added))
        self.spent += sum(self.lengths[piece] for piece in added) * _evaluations(running, self.depth)
        self.rate = self.unspent if self.sample.exhausted else SPENDING * self.unspent
        self.unspent -= self.rate
        grid = self._grid(running, 0)
        refuse_too_little(grid)
        self._settle(grid, self._confirmed(running))
        remaining = self.remaining
        parts = self._parts(grid, remaining)
        absent, present = (self._effects(parts, decision) for decision in ("no_effect", "matters"))
        for layer, narrow, effect, share in zip(remaining, absent, present, self._shares_read(parts), strict=True):
            if effect.p_below() < SELECTION:
                self.candidates.setdefault(layer, self.looks)
            if self._power(narrow, effect, share) < FUTILE:
                self._conclude(layer, effect, grid)
        if remaining := self.remaining:
            self.variances = self._variances(self._parts(grid, remaining))

    def stop(self) -> None:
        if remaining := self.remaining:
            grid = self._grid(remaining, 0)
            for layer, effect in zip(remaining, self._effects(self._parts(grid, remaining), "matters"), strict=True):
                self._conclude(layer, effect, grid)

    def _conclude(self, layer: int, effect: SampleEstimate[float], grid: Grid) -> None:
        self._finish(layer, "matters" if effect.low > 0 else "inconclusive", effect, grid)

    def _settle(self, grid: Grid, harmful: Collection[int]) -> None:
        before = -1
        while before != len(self.finishes):
            before = len(self.finishes)
            for decision in ERROR_SHARES:
                remaining = self.remaining
                for layer, effect in zip(remaining, self._effects(self._parts(grid, remaining), decision), strict=True):
                    if self._settles(decision, effect, layer in harmful):
                        self._finish(layer, decision, effect, grid)

    def _settles(self, decision: Decision, effect: SampleEstimate[float], harmful: bool) -> bool:
        if decision == "matters":
            return settle(effect, self.margin) == "matters"
        if self.sample.documents < min(len(self.lengths), rare_documents(self.depth)):
            return False
        return harmful if decision == "harmful" else is_negligible(effect, self.margin)

    def _power(self, absent: SampleEstimate[float], present: SampleEstimate[float], share: float) -> float:
        """Return the predictive power: the probability that reading all of the text will be conclusive.

        After a fraction f of the text, the final value is nearly N(value, error^2 (1 - f)). The half-widths of the
        intervals `absent` and `present` are then a and b, which is sqrt(f) times what they are now:

            power = P(|value| < margin - a) + P(|value| > max(margin, b))
        """
        margin, spread = self.margin, present.error * math.sqrt(1 - share)
        # The shorter side of the interval, because skewness lengthens the other one less and less.
        shorter = (min(each.value - each.low, each.high - each.value) for each in (absent, present))
        reach, other = (side * math.sqrt(share) for side in shorter)
        inside, value = max(0.0, margin - reach), present.value
        if spread == 0:
            return float(abs(value) < inside or abs(value) > max(margin, other))
        none = ndtr((inside - value) / spread) - ndtr((-inside - value) / spread)
        some = ndtr((abs(value) - max(margin, other)) / spread)
        return float(none + some)

    def _shares_read(self, parts: Sequence[StratumPart]) -> NDArray[np.float64]:
        now = np.sum([part.variance for part in parts], axis=0)
        end = np.sum([part.variance * self.sample.share(part.name) for part in parts], axis=0)
        return np.divide(end, now, out=np.ones_like(now), where=now > 0)

    def _variances(self, parts: Sequence[StratumPart]) -> dict[str, float]:
        now = np.sum([part.variance for part in parts], axis=0)
        return {
            part.name: float(np.mean(np.divide(part.variance * part.units, now, out=np.ones_like(now), where=now > 0)))
            for part in parts
        }

    def _confirmed(self, running: Sequence[int]) -> set[int]:
        layers: set[int] = set()
        if len({(task, document) for task, document, _ in self.lengths}) < MIN_DOCUMENTS:
            return layers
        for layer in running:
            if layer in self.candidates:
                grid = self._grid([layer], self.candidates[layer])
                owners = [self.strata.of_task[task] for task, _, _ in grid.cells]
                enough = len(owners) >= MIN_UNITS and all(
                    owners.count(name) >= MIN_STRATUM_DOCUMENTS for name in self.strata.weight
                )
                level = ALPHA / self.comparisons("harmful")
                if enough and self._effects(self._parts(grid, [layer]), "harmful")[0].p_below() < level:
                    layers.add(layer)
        return layers

    def _parts(self, grid: Grid, layers: Sequence[int]) -> list[StratumPart]:
        return stratum_parts(grid, self.baseline, [self.keys[layer] for layer in layers], self.strata)

    def _effects(self, parts: Sequence[StratumPart], decision: Decision) -> list[SampleEstimate[float]]:
        return combine_strata(parts, max(0.0, 1 - 2 * ALPHA / self.comparisons(decision)))

    def _grid(self, layers: Collection[int], since: int) -> Grid:
        plans = {self.baseline, *(self.keys[layer] for layer in layers)}
        grid = arrange(row for look in self.losses[since:] for row in look if row.plan in plans)
        scale = np.array([self._scale(*cell) for cell in grid.cells])
        return replace(grid, nll=grid.nll * scale, tokens=grid.tokens * scale)

    def _scale(self, task: str, document: str, window: int) -> float:
        piece = (task, document, WHOLE)
        piece = piece if piece in self.lengths else (task, document, window)
        return self.full_lengths[piece] / self.lengths[piece]

    def _finish(self, layer: int, decision: Decision, effect: SampleEstimate[float], grid: Grid) -> None:
        limit = max(abs(effect.low), abs(effect.high))
        if decision != "no_effect":
            limit = detectable_effect(effect, self.comparisons("matters") / 2)
        self.finishes[layer] = LayerOutcome(decision, effect, limit, grid.documents(), self.sample.tokens)


def _evaluations(layers: Collection[int], depth: int) -> int:
    return depth + sum(depth - layer - 1 for layer in layers)
