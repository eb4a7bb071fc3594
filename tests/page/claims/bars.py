"""Intervals slightly to either side of every threshold (`NEAR`), for exact verdicts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from scipy.stats import norm

from layerwise.results.rows import Score
from page.claims.truths import CONTRADICTED, INCONCLUSIVE, NULL, SUPPORTED, judge_rows

NEAR = 1e-6
FAR = 1.0

TWO_SIDED = {"above": SUPPORTED, "within": NULL, "below": CONTRADICTED, "open": INCONCLUSIVE}
"""Null where the null explains it, contradicted where it is reversed."""
ONE_SIDED = {"above": SUPPORTED, "within": NULL, "below": NULL, "open": INCONCLUSIVE}
CONTRADICTED_BY_NULL = {"above": SUPPORTED, "within": CONTRADICTED, "below": CONTRADICTED, "open": INCONCLUSIVE}
SUPPORT_IS_NULL = {"above": NULL, "within": CONTRADICTED, "below": CONTRADICTED, "open": INCONCLUSIVE}
"""A contrast of the published way of measuring only."""
POSITIVE = {"above": SUPPORTED, "below": CONTRADICTED, "open": INCONCLUSIVE}
NEGATIVE = {"above": CONTRADICTED, "below": SUPPORTED, "open": INCONCLUSIVE}
SUPPORTED_ABOVE = {"above": SUPPORTED, "below": INCONCLUSIVE, "open": INCONCLUSIVE}
"""The verdict of a supported claim, by the position of the skill at a bound."""

Interval = tuple[float, float]
"""The estimate is the middle of the interval."""
Rows = Mapping[str, Interval | float]
"""Metric to interval, or to a number without one."""
IntervalsByPosition = Mapping[str, Sequence[Interval]]
"""Position to intervals."""


def place_around_margin(margin: float) -> IntervalsByPosition:
    return {
        "above": [(NEAR, margin + NEAR), (NEAR, margin + FAR)],
        "within": [(NEAR, margin - NEAR), (-margin + NEAR, -NEAR), (-margin + NEAR, margin - NEAR)],
        "below": [(-margin - NEAR, -NEAR), (-margin - FAR, -NEAR)],
        "open": [(-NEAR, margin + NEAR), (-margin - NEAR, NEAR), (-margin - NEAR, margin - NEAR)],
    }


def place_around_bound(bound: float) -> IntervalsByPosition:
    return {
        "above": [(bound + NEAR, bound + FAR)],
        "below": [(bound - FAR, bound - NEAR)],
        "open": [(bound - NEAR, bound + FAR), (bound - FAR, bound + NEAR)],
    }


def compute_widening(tests: int) -> float:
    return float(norm.ppf(1 - 0.025 / tests) / norm.ppf(0.975))


def plant_rows(key: str, rows: Rows, task: str = "all", measure: str = "contrast", **columns: Any) -> tuple[Score, ...]:
    return tuple(replace(_plant_row(measure, key, task, metric, ends), **columns) for metric, ends in rows.items())


def _plant_row(measure: str, subject: str, task: str, metric: str, ends: Interval | float) -> Score:
    if isinstance(ends, tuple):
        low, high = ends
        return Score(measure, metric, (low + high) / 2, low, high, claim=subject, task=task, mde=0.1, tokens=1_000)
    return Score(measure, metric, ends, claim=subject, task=task)


@dataclass(frozen=True)
class Case:
    rule: str
    name: str
    rows: tuple[Score, ...]
    verdict: str
    depth: int = 12

    @property
    def verdict_or_failure(self) -> str:
        claim = judge_rows(self.rule, self.rows, self.depth)
        return claim.verdict if claim.verdict == self.verdict else f"{self.rule} {self.name}: {claim}"


def vary_metric(
    key: str,
    base: Rows,
    metric: str,
    where: IntervalsByPosition,
    verdicts: Mapping[str, str],
    more: Iterable[Score] = (),
    **columns: Any,
) -> Iterable[Case]:
    yield from vary_interval(
        key, metric, where, verdicts, lambda ends: (*plant_rows(key, {**base, metric: ends}, **columns), *more)
    )


def vary_interval(
    rule: str,
    name: str,
    where: IntervalsByPosition,
    verdicts: Mapping[str, str],
    rows: Callable[[Interval], tuple[Score, ...]],
) -> Iterable[Case]:
    for position, verdict in verdicts.items():
        for number, ends in enumerate(where[position]):
            yield Case(rule, f"{name} {position} {number}", rows(ends), verdict)


def make_exact_test(*cases: Iterable[Case]) -> Callable[[Sequence[Case]], None]:
    rules: dict[str, list[Case]] = {}
    for case in (case for part in cases for case in part):
        rules.setdefault(case.rule, []).append(case)

    @pytest.mark.parametrize("cases", rules.values(), ids=rules)
    def test(cases: Sequence[Case]) -> None:
        assert [case.verdict_or_failure for case in cases] == [case.verdict for case in cases]

    return test


def plant_validation_losses(variant: str, losses: Sequence[float], seed: int = 0) -> list[Score]:
    rows = enumerate(losses, start=1)
    return [Score("training", "validation_loss", loss, variant=variant, seed=seed, step=step) for step, loss in rows]


def make_unfinished_test(contradicting: Mapping[str, tuple[tuple[Score, ...], str]]) -> Callable[..., None]:
    """A training is finished if at most 2 % of the fall of its loss came in its last quarter."""

    @pytest.mark.parametrize(
        ("losses", "is_finished"),
        [
            ([2.0, 1.5, 1.02 + NEAR, 1.0], False),
            ([2.0, 1.5, 1.02 - NEAR, 1.0], True),
            ([2.0, 1.0, 1.5, 1.2], True),
            ([1.0, 1.5, 2.0, 2.0], True),
            ([1.0], False),
        ],
    )
    @pytest.mark.parametrize("rule", contradicting)
    def test(rule: str, losses: list[float], is_finished: bool) -> None:
        rows, variant = contradicting[rule]
        assert judge_rows(rule, rows, 12).verdict == CONTRADICTED
        trained = [
            *plant_validation_losses(variant, [2.0, 1.0, 1.0, 1.0]),
            *plant_validation_losses(variant, losses, seed=1),
            *plant_validation_losses("other", [1.0]),
        ]
        claim = judge_rows(rule, (*rows, *trained), 12)
        assert claim.verdict == (CONTRADICTED if is_finished else INCONCLUSIVE)
        assert is_finished or f"The validation loss of {variant} was still falling" in claim.answer

    return test
