"""Similarity rows as matrices, and zones."""

from __future__ import annotations

from random import Random

import pytest

from layerwise.report.data import ReportData
from layerwise.report.evidence import Evidence
from layerwise.report.sweep.similarity import Matrix, Zone, clearest_zone, contrast, contrast_bounds, difference, matrix
from layerwise.results.rows import Score
from report import synthetic


def test_one_order_of_a_pair_fills_both() -> None:
    rows = tuple(Score.of("similarity", "cosine", value, layer=0, other=other) for other, value in ((0, 1.0), (2, 0.5)))
    found = matrix(Evidence.of(ReportData({}, (), rows)), "cosine")
    assert found == ((1.0, None, 0.5), (None, None, None), (0.5, None, None))


def test_a_measure_that_was_not_taken_has_no_matrix() -> None:
    assert matrix(Evidence.of(ReportData({}, (), ())), "cosine") is None


def test_the_planted_zone_is_found_and_is_the_sinks_work() -> None:
    run = Evidence.of(synthetic.run(12))
    plain, without = (matrix(run, name) for name in ("cosine", "cosine_no_sink"))
    assert plain is not None
    assert without is not None
    zone = clearest_zone(plain)
    assert zone is not None
    assert (zone.first, zone.last) == (3, 10)
    assert contrast(without, 3, 10) < 0.4 * zone.contrast
    assert difference(plain, without)[5][6] == pytest.approx((plain[5][6] or 0) - (without[5][6] or 0))


def test_too_few_states_have_no_zone() -> None:
    assert clearest_zone(((1.0, 0.5), (0.5, 1.0))) is None


def test_a_zone_leaves_something_out_besides_the_embedding() -> None:
    alike = tuple(tuple(1.0 if min(i, j) > 0 else 0.0 for j in range(6)) for i in range(6))
    found = clearest_zone(alike)
    assert found is not None
    assert found.last - found.first < 4
    assert found.contrast == 0.0
    assert contrast(alike, 1, 5) == 0.0


def by_definition(values: Matrix) -> Zone | None:
    """Every run with its contrast, one by one."""
    size = len(values)
    ends = [(first, last) for first in range(1, size) for last in range(first + 2, size) if last - first < size - 2]
    return max((Zone(*each, contrast(values, *each)) for each in ends), key=lambda zone: zone.contrast, default=None)


@pytest.mark.parametrize("size", [3, 4, 5, 8, 13])
def test_the_clearest_zone_is_that_of_the_definition_to_the_last_bit(size: int) -> None:
    random = Random(size)
    for drawn in range(30):
        levels = [random.uniform(-1, 1) for _ in range(2 + drawn)]  # few levels: contrasts that are equal
        values = tuple(
            tuple(None if random.random() < 0.1 else random.choice(levels) for _ in range(size)) for _ in range(size)
        )
        assert clearest_zone(values) == by_definition(values)


def test_the_clearest_zone_of_a_deep_model_looks_at_each_pair_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layerwise.report.sweep.similarity._mean", None)
    values = tuple(tuple(1.0 if i == j else 0.9 if {i, j} <= {*range(40, 70)} else 0.1 for j in range(128))
                   for i in range(128))  # fmt: skip
    zone = clearest_zone(values)
    assert zone is not None
    assert (zone.first, zone.last, zone.contrast) == (40, 69, pytest.approx(0.8))


def test_bounds_of_a_contrast_hold_it_and_its_extremes() -> None:
    values = ((1, 0, 0, 0), (0, 1, 0.9, 0), (0, 0.9, 1, 0), (0, 0, 0, 1))
    lows, highs = (
        tuple(
            tuple(1.0 if i == j else value + shift for j, value in enumerate(found)) for i, found in enumerate(values)
        )
        for shift in (-0.1, 0.1)
    )
    assert contrast_bounds(lows, highs, 1, 2) == pytest.approx((0.7, 1.1))
    assert contrast_bounds(((None,) * 4,) * 4, highs, 1, 2) is None


def test_a_bound_that_was_not_measured_is_none() -> None:
    rows = (
        Score.of("similarity", "cosine", 0.5, layer=0, other=1),
        Score.of("similarity", "cosine", 1.0, layer=1, other=1),
    )
    assert matrix(Evidence.of(ReportData({}, (), rows)), "cosine", "low") == ((None, None), (None, 1.0))
