"""Curves: means over draws, intervals, the headline's point, and differences."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from layerwise.plan.painters import GIVEN
from layerwise.report.data import ReportData
from layerwise.report.derived.curves import curve_families, curves, half_depth
from layerwise.report.kinds.sweep_findings import by_document, contrast, independent
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.selection import Rows
from report import synthetic

FIRST, SECOND = "0 2 1", "0 2"


def mean(*rows: tuple[str, float, float | None]) -> Score:
    plans = tuple(PlanRecord(plan, "painters", "random", 2, at, 4, 4, 4, 4) for at, (plan, _, _) in enumerate(rows))
    scores = (
        Score("effect", "delta_nll", value, *(() if half is None else (value - half, value + half)), plan=plan)
        for plan, value, half in rows
    )
    drawn = Rows(curves(ReportData({"depth": 4}, plans, tuple(scores))))
    assert [row.seed for row in drawn[:-1]] == list(range(len(drawn) - 1))
    (own,) = drawn.where(seed=None, condition="random", part="painters", amount=2)
    return own


BOTH_ERRORS = math.hypot(4.3027 / math.sqrt(3), 0.3)  # Student's t at 2 degrees of freedom, standard error 1/sqrt(3)


@pytest.mark.parametrize(
    ("draws", "value", "half"),
    [
        (((1.0, 0.3), (2.0, 0.3), (3.0, 0.3)), 2.0, BOTH_ERRORS),
        (((1.0, 0.3), (1.0, 0.3)), 1.0, 0.3),  # equal draws still have the error of their documents
        (((1.0, 0.3), (1.0, None)), 1.0, None),
        (((1.0, 0.3), (math.nan, 0.3)), 1.0, 0.3),  # what is not finite is left out
    ],
)
def test_a_mean_over_draws_has_the_errors_of_draws_and_documents(
    draws: tuple[tuple[float, float | None], ...], value: float, half: float | None
) -> None:
    row = mean(*((plan, *draw) for plan, draw in zip(("0 2 1 3", "1 0 2 3", "0 1 3 2"), draws, strict=False)))
    assert row.value == pytest.approx(value)
    bounds = (None, None) if half is None else pytest.approx((value - half, value + half), rel=1e-4)
    assert (row.low, row.high) == bounds


def test_families_of_one_size_and_plans_that_were_given_one_by_one_have_no_curve() -> None:
    run = synthetic.run(6, ("painters", "leave_one_out", "every_window"))
    given = tuple(replace(each, family=GIVEN, strategy=GIVEN) for each in run.plans)
    assert curve_families(replace(run, plans=(*run.plans, *given))) == ("painters", "every_window")


def test_half_depth_prefers_sizes_that_most_strategies_were_run_at() -> None:
    assert half_depth(synthetic.run(12, ("painters",)).plans, 12) == 5


def point(plan: str, value: float, half: float | None = 0.3) -> Rows:
    bounds = () if half is None else (value - half, value + half)
    return Rows([Score("effect", "delta_nll", value, *bounds, plan=plan, task="text")])


def losses(gap: float, noise: float, documents: int = 40) -> tuple[Loss, ...]:
    draw = random.Random(0)
    rows = []
    for number in range(documents):
        hard = draw.uniform(0.0, 5.0)
        for window in range(2):
            own = (hard, hard + gap + draw.gauss(0.0, noise))
            rows += [
                Loss(plan, "text", f"d{number}", window, nll * 10, 10, 0)
                for plan, nll in zip((FIRST, SECOND), own, strict=True)
            ]
    return tuple(rows)


def test_paired_documents_find_a_small_difference_that_the_intervals_alone_would_not() -> None:
    documents = by_document(losses(gap=0.1, noise=0.05))
    paired = contrast(point(SECOND, 2.6), point(FIRST, 2.5), documents)
    joined = contrast(point(SECOND, 2.6), point(FIRST, 2.5), {})
    assert paired.documents == 40
    assert 0.0 < (paired.low or 0.0) < 0.1 < (paired.high or 0.0)
    assert joined.documents is None
    assert (joined.low or 0.0) < 0.0 < (joined.high or 0.0) == pytest.approx(0.1 + 0.3 * 2**0.5)


def test_no_difference_is_not_resolved() -> None:
    paired = contrast(point(SECOND, 2.5), point(FIRST, 2.5), by_document(losses(gap=0.0, noise=0.3)))
    assert (paired.low or 0.0) < 0.0 < (paired.high or 0.0)


def test_the_union_of_tasks_holds_every_document() -> None:
    found = by_document((*losses(0.1, 0.1, 2), Loss(FIRST, "other", "d0", 0, 1.0, 1, 1)))
    assert len(found[FIRST, "all"]) == 3
    assert found[FIRST, "other"] == {("other", "d0"): (1.0, 1)}
    assert found[FIRST, "text"]["text", "d0"][1] == 20  # two windows of ten tokens


def test_the_interval_widens_with_the_number_of_pairs_picked_from() -> None:
    one, ten = (independent(point(FIRST, 1.0)[0], point(SECOND, 0.4)[0], pairs=pairs) for pairs in (1, 10))
    assert (one.low or 0.0) > 0.0
    # 2.807 / 1.960, the normal quantiles at 0.05 / 20 and 0.05 / 2
    assert ((ten.high or 0) - ten.value) / ((one.high or 0) - one.value) == pytest.approx(2.807 / 1.960, rel=1e-3)


def test_without_intervals_there_is_no_contrast() -> None:
    assert contrast(point(FIRST, 1.0, None), point(SECOND, 0.4), {}) is None
    assert independent(point(FIRST, 1.0)[0], point(SECOND, 0.4, None)[0]) is None
