"""Intervals slightly to either side of every threshold (`NEAR`), for exact verdicts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from scipy.stats import norm

from layerwise.results.rows import Score
from page.claims.truths import CONTRADICTED, NULL, OPEN, SUPPORTED, claim_of

NEAR = 1e-6
FAR = 1.0

EITHER = {"above": SUPPORTED, "within": NULL, "below": CONTRADICTED, "open": OPEN}
"""Null where the null explains it, contradicted where it is reversed."""
BESIDE_NULL = {"above": SUPPORTED, "within": NULL, "below": NULL, "open": OPEN}
NEEDED = {"above": SUPPORTED, "within": CONTRADICTED, "below": CONTRADICTED, "open": OPEN}
ALONE = {"above": NULL, "within": CONTRADICTED, "below": CONTRADICTED, "open": OPEN}
"""A contrast of the published way of measuring only."""
MORE = {"above": SUPPORTED, "below": CONTRADICTED, "open": OPEN}
LESS = {"above": CONTRADICTED, "below": SUPPORTED, "open": OPEN}
LEARNED = {"above": SUPPORTED, "below": OPEN, "open": OPEN}
"""The verdict of a supported claim, by the position of the skill at a bound."""

Ends = tuple[float, float]
"""The estimate is the middle of the interval."""
Rows = Mapping[str, Ends | float]
"""Metric to interval, or to a number without one."""
Where = Mapping[str, Sequence[Ends]]
"""Position to intervals."""


def around(margin: float) -> Where:
    return {
        "above": [(NEAR, margin + NEAR), (NEAR, margin + FAR)],
        "within": [(NEAR, margin - NEAR), (-margin + NEAR, -NEAR), (-margin + NEAR, margin - NEAR)],
        "below": [(-margin - NEAR, -NEAR), (-margin - FAR, -NEAR)],
        "open": [(-NEAR, margin + NEAR), (-margin - NEAR, NEAR), (-margin - NEAR, margin - NEAR)],
    }


def beside(bound: float) -> Where:
    return {
        "above": [(bound + NEAR, bound + FAR)],
        "below": [(bound - FAR, bound - NEAR)],
        "open": [(bound - NEAR, bound + FAR), (bound - FAR, bound + NEAR)],
    }


def wider(tests: int) -> float:
    return float(norm.ppf(1 - 0.025 / tests) / norm.ppf(0.975))


def planted(key: str, rows: Rows, task: str = "all", measure: str = "contrast", **columns: Any) -> tuple[Score, ...]:
    return tuple(replace(_row(measure, key, task, metric, ends), **columns) for metric, ends in rows.items())


def _row(measure: str, subject: str, task: str, metric: str, ends: Ends | float) -> Score:
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
    def said(self) -> str:
        claim = claim_of(self.rule, self.rows, self.depth)
        return claim.verdict if claim.verdict == self.verdict else f"{self.rule} {self.name}: {claim}"


def varied(
    key: str,
    base: Rows,
    metric: str,
    where: Where,
    verdicts: Mapping[str, str],
    more: Iterable[Score] = (),
    **columns: Any,
) -> Iterable[Case]:
    yield from each(
        key, metric, where, verdicts, lambda ends: (*planted(key, {**base, metric: ends}, **columns), *more)
    )


def each(
    rule: str, name: str, where: Where, verdicts: Mapping[str, str], rows: Callable[[Ends], tuple[Score, ...]]
) -> Iterable[Case]:
    for position, verdict in verdicts.items():
        for number, ends in enumerate(where[position]):
            yield Case(rule, f"{name} {position} {number}", rows(ends), verdict)


def exact(*cases: Iterable[Case]) -> Callable[[Sequence[Case]], None]:
    rules: dict[str, list[Case]] = {}
    for case in (case for part in cases for case in part):
        rules.setdefault(case.rule, []).append(case)

    @pytest.mark.parametrize("cases", rules.values(), ids=rules)
    def test(cases: Sequence[Case]) -> None:
        assert [case.said for case in cases] == [case.verdict for case in cases]

    return test


def validated(arm: str, losses: Sequence[float], seed: int = 0) -> list[Score]:
    rows = enumerate(losses, start=1)
    return [Score("training", "validation_loss", loss, arm=arm, seed=seed, step=step) for step, loss in rows]


def unfinished(contradicting: Mapping[str, tuple[tuple[Score, ...], str]]) -> Callable[..., None]:
    """A training is over where 2 % of the fall of its loss or less came in its last quarter."""

    @pytest.mark.parametrize(
        ("losses", "is_over"),
        [
            ([2.0, 1.5, 1.02 + NEAR, 1.0], False),
            ([2.0, 1.5, 1.02 - NEAR, 1.0], True),
            ([2.0, 1.0, 1.5, 1.2], True),
            ([1.0, 1.5, 2.0, 2.0], True),
            ([1.0], False),
        ],
    )
    @pytest.mark.parametrize("rule", contradicting)
    def test(rule: str, losses: list[float], is_over: bool) -> None:
        rows, arm = contradicting[rule]
        assert claim_of(rule, rows, 12).verdict == CONTRADICTED
        trained = [*validated(arm, [2.0, 1.0, 1.0, 1.0]), *validated(arm, losses, seed=1), *validated("other", [1.0])]
        claim = claim_of(rule, (*rows, *trained), 12)
        assert claim.verdict == (CONTRADICTED if is_over else OPEN)
        assert is_over or f"The validation loss of {arm} was still falling" in claim.answer

    return test
