"""Whether running layers side by side is ever the best way to spend a millisecond: a rule, stated beforehand.

Every plan with parallel layers is compared with the plans of all other arms (its *rivals*: the model as trained,
skipped layers, loops, pruned and healed models) that take no more time than it, in one setting. A rival takes
no more time where its ratio to the plan, within a round, is at most 1 + `MARGIN`:

    surely      the interval of the median ratio lies below that
    possibly    it does not lie above it

Intervals of a plan hold for all its rivals together (Bonferroni). Losses are compared on text that chose no plan,
paired by document:

    beaten          it loses more than the rival which, of those that surely take no more time, lost least on the text
                    that chose plans
    best            it loses less than each of those that possibly take no more time (an intersection-union test: the
                    largest of their p-values counts, and the rivals need no correction)
    not resolvable  neither; also where no rival can be distinguished from it in time, or none is as fast

Both are one-sided, by sign flips of whole documents, and Holm's correction runs over both of all plans in all settings:
in 95 of 100 studies no plan is called beaten or best that is not, as far as the times are right.

Rows of measure `frontier`, of the `plan` in a setting (`condition`):

    above_rival     nats per token that it loses above the rival of `beaten`, which it is `against`: interval, one-sided
                    p and Holm's, mde
    above_closest   the same for the rival of `best` whose p is the largest

and one row of value 1 whose metric is `beaten`, `best` or `not_resolvable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerwise.measure.cost.pass_time import RoundTimes, Setting
from layerwise.measure.stats import statistics
from layerwise.measure.stats.estimate import median_interval
from layerwise.measure.stats.grid import FEWEST_UNITS, arrange
from layerwise.measure.stats.statistics import Numbers, StratumLabels
from layerwise.measure.stats.strata import Strata
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import ABOVE_CLOSEST, ABOVE_RIVAL, BEATEN, BEST, FRONTIER, PARALLEL, UNRESOLVED

MARGIN = 0.02
"""A rival that takes up to so much more of the time counts as taking no more."""

ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class LatencyPoint:
    """Something that was timed: its `name` in the rounds, its arm, and the plan that its losses are those of."""

    name: str
    arm: str
    losses: str


def verdict_rows(
    points: Sequence[LatencyPoint],
    losses: Iterable[Loss],
    chosen_on: Mapping[str, float],
    rounds: Sequence[RoundTimes],
    settings: Sequence[Setting],
    *,
    seed: int = 0,
) -> list[Score]:
    """The rows of every parallel plan in every setting, as the module says.

    `losses` are those on fresh text, of every plan that a point names; `chosen_on` holds each plan's mean loss on the
    text that chose plans. No rows where the fresh text has fewer than 8 documents or windows.
    """
    grid = arrange(losses)
    tokens = grid.by_unit(grid.tokens)
    if tokens.size < FEWEST_UNITS:
        return []
    values = {plan: grid.nll[at] for at, plan in enumerate(grid.plans)}
    by_unit = {name: grid.by_unit(nll) for name, nll in values.items()}
    contests = [
        _Contest.of(point, setting, points, rounds, chosen_on, by_unit)
        for setting in settings
        for point in points
        if point.arm == PARALLEL and (point.name, setting) in rounds[0]
    ]
    if not contests:
        return []
    return list(_rows(contests, tokens, Strata.labels(grid), seed, (grid.documents(), int(tokens.sum()))))


def possibly_and_surely(ratios: Sequence[float], rivals: int) -> tuple[bool, bool]:
    """Whether a rival, one of so many, possibly and surely takes no more time, by its ratios to the plan.

    In fewer rounds than the corrected level needs, it is neither sure that it does nor that it does not.

    >>> possibly_and_surely([0.9] * 20, 10), possibly_and_surely([1.1] * 20, 10), possibly_and_surely([0.9] * 6, 10)
    ((True, True), (False, False), (True, False))
    """
    level = 1 - ALPHA / rivals
    if 2 * 0.5 ** len(ratios) > 1 - level:
        return True, False
    low, high = median_interval(ratios, level)
    return low <= 1 + MARGIN, high <= 1 + MARGIN


@dataclass(frozen=True, slots=True)
class _Contest:
    """A parallel plan in a setting: what it loses above each of its rivals, by unit of the text."""

    point: LatencyPoint
    setting: Setting
    above: Mapping[str, Numbers]
    rival: str | None
    """The rival of `beaten`."""

    @classmethod
    def of(
        cls,
        point: LatencyPoint,
        setting: Setting,
        points: Sequence[LatencyPoint],
        rounds: Sequence[RoundTimes],
        chosen_on: Mapping[str, float],
        by_unit: Mapping[str, Numbers],
    ) -> _Contest:
        others = [other for other in points if other.arm != PARALLEL and (other.name, setting) in rounds[0]]
        possible, sure = [], []
        for other in others:
            ratios = [each[other.name, setting] / each[point.name, setting] for each in rounds]
            possibly, surely = possibly_and_surely(ratios, len(others))
            possible += [other] * possibly
            sure += [other] * surely
        above = {other.name: by_unit[point.losses] - by_unit[other.losses] for other in possible}
        rival = min(sure, key=lambda other: chosen_on[other.losses], default=None)
        return cls(point, setting, above, None if rival is None else rival.name)


def _rows(
    contests: Sequence[_Contest], tokens: Numbers, strata: StratumLabels, seed: int, counts: tuple[int, int]
) -> Iterator[Score]:
    """The rows of all contests, corrected together."""
    pairs = [(at, rival) for at, contest in enumerate(contests) for rival in contest.above]
    family = 2 * len(contests)
    tests: dict[tuple[int, str], Score] = {}
    if pairs:
        differences = np.stack([contests[at].above[rival] for at, rival in pairs])
        flips = statistics.sign_flips(differences, seed=seed, flips=max(10_000, 40 * family), strata=strata)
        estimate = statistics.paired_bootstrap(differences, tokens, seed=seed, strata=strata)
        mde = statistics.minimum_detectable_effect(
            estimate.error, estimate.freedom + 1, comparisons=family, alpha=2 * ALPHA
        )
        for index, (at, rival) in enumerate(pairs):
            point, setting = contests[at].point, contests[at].setting
            tests[at, rival] = Score(
                FRONTIER,
                ABOVE_RIVAL,
                float(estimate.value[index]),
                float(estimate.low[index]),
                float(estimate.high[index]),
                float(flips.p[index]),
                mde=float(mde[index]),
                documents=counts[0],
                tokens=counts[1],
                plan=point.name,
                condition=str(setting),
                against=rival,
            )
    p: list[float] = []
    shown: list[tuple[Score | None, Score | None]] = []
    for at, contest in enumerate(contests):
        worse = None if contest.rival is None else tests[at, contest.rival]
        better = [tests[at, rival] for rival in contest.above]
        closest = max(better, key=lambda row: (_one_sided(row, -1), row.value), default=None)
        p += [
            1.0 if worse is None else _one_sided(worse, 1),
            1.0 if closest is None else _one_sided(closest, -1),
        ]
        shown.append((worse, closest))
    adjusted = statistics.holm(p).tolist()
    for at, (contest, (worse, closest)) in enumerate(zip(contests, shown, strict=True)):
        of_beaten, of_best = adjusted[2 * at : 2 * at + 2]
        if worse is not None:
            yield replace(worse, p=p[2 * at], p_adjusted=of_beaten)
        if closest is not None:
            yield replace(closest, metric=ABOVE_CLOSEST, p=p[2 * at + 1], p_adjusted=of_best)
        verdict = BEATEN if of_beaten < ALPHA else BEST if of_best < ALPHA else UNRESOLVED
        yield Score(FRONTIER, verdict, 1.0, plan=contest.point.name, condition=str(contest.setting))


def _one_sided(row: Score, sign: int) -> float:
    """The p-value of a difference of this sign, from the two-sided one of sign flips."""
    assert row.p is not None, "sign flips have a p-value"
    return row.p / 2 if row.value * sign > 0 else 1 - row.p / 2
