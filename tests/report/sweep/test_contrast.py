"""Differences between effects: paired where documents are shared, joined where they are not."""

from __future__ import annotations

import random

import pytest

from layerwise.report.sweep.contrast import by_document, contrast, independent
from layerwise.report.sweep.curves import Point
from layerwise.results.rows import Loss, PlanRecord

FIRST, SECOND = "0 2 1", "0 2"


def point(plan: str, value: float, half: float | None = 0.3) -> Point:
    bounds = (None, None) if half is None else (value - half, value + half)
    return Point(2, value, *bounds, 0.1, (PlanRecord(plan, "f", "s", 2, None, 3, 3, 3, 3),), ())


def losses(gap: float, noise: float, documents: int = 40) -> tuple[Loss, ...]:
    """Two plans whose documents differ widely, and alike: the second costs `gap` nats per token more."""
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
    paired = contrast(point(SECOND, 2.6), point(FIRST, 2.5), "text", documents)
    joined = contrast(point(SECOND, 2.6), point(FIRST, 2.5), "text", {})
    assert paired is not None
    assert joined is not None
    assert paired.paired
    assert paired.resolved
    assert paired.low < 0.1 < paired.high
    assert not joined.paired
    assert not joined.resolved
    assert joined.high - joined.value == pytest.approx(0.3 * 2**0.5)


def test_no_difference_is_not_resolved() -> None:
    paired = contrast(point(SECOND, 2.5), point(FIRST, 2.5), "text", by_document(losses(gap=0.0, noise=0.3)))
    assert paired is not None
    assert not paired.resolved


def test_the_union_of_tasks_holds_every_document() -> None:
    found = by_document((*losses(0.1, 0.1, 2), Loss(FIRST, "other", "d0", 0, 1.0, 1, 1)))
    assert len(found[FIRST, "all"]) == 3
    assert found[FIRST, "other"] == {("other", "d0"): (1.0, 1)}
    assert found[FIRST, "text"]["text", "d0"][1] == 20  # two windows of ten tokens


def test_the_interval_widens_with_the_number_of_pairs_picked_from() -> None:
    one, ten = (independent(point(FIRST, 1.0), point(SECOND, 0.4), pairs=pairs) for pairs in (1, 10))
    assert one is not None
    assert ten is not None
    assert one.resolved
    # 2.807 / 1.960, the normal quantiles at 0.05 / 20 and 0.05 / 2
    assert (ten.high - ten.value) / (one.high - one.value) == pytest.approx(2.807 / 1.960, rel=1e-3)


def test_without_intervals_there_is_no_contrast() -> None:
    assert contrast(point(FIRST, 1.0, None), point(SECOND, 0.4), "text", {}) is None
    assert independent(point(FIRST, 1.0), point(SECOND, 0.4, None)) is None
