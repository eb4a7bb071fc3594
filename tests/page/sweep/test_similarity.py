"""Similarity matrices, and the clearest run of similar hidden states."""

from random import Random
from statistics import fmean

import pytest

from layerwise.page.data import ReportData
from layerwise.page.derived.zones import Matrix, Runs, Zone, matrix
from layerwise.results.rows import Score
from layerwise.studies.sweep.findings import findings


def rows(*pairs: tuple[int, int, float]) -> ReportData:
    return ReportData({}, (), tuple(Score("similarity", "cosine", value, layer=i, other=j) for i, j, value in pairs))


def test_one_order_of_a_pair_fills_both() -> None:
    found = matrix(rows((0, 0, 1.0), (0, 2, 0.5)), "cosine")
    assert found == ((1.0, None, 0.5), (None, None, None), (0.5, None, None))
    assert matrix(rows((0, 2, 0.5)), "cosine") is None, "fewer pairs than states are no matrix"
    assert matrix(rows(), "cosine") is None
    chain = rows(*((state, state + 1, 0.5) for state in range(3000)))
    assert matrix(chain, "cosine") is None, "a few pairs of thousands of states are not a matrix"
    assert findings(chain) is findings(chain), "computed once, not once for each section"
    assert matrix(rows((0, 1, 0.5), (1, 1, 1.0)), "cosine", "low") == ((None, None), (None, 1.0)), "no bounds"


def by_definition(values: Matrix) -> Zone | None:
    size = len(values)

    def mean(first: int, last: int, columns: range, *, inside: bool) -> float | None:
        pairs = [(i, j) for i in range(first, last + 1) for j in columns if i != j and inside == (first <= j <= last)]
        kept = [value for i, j in pairs if (value := values[i][j]) is not None]
        return fmean(kept) if kept else None

    def contrast(first: int, last: int) -> float:
        alike, apart = (mean(first, last, range(1, size), inside=inside) for inside in (True, False))
        return alike - apart if alike is not None and apart is not None else 0.0

    ends = [(first, last) for first in range(1, size) for last in range(first + 2, size) if last - first < size - 2]
    return max((Zone(*each, contrast(*each)) for each in ends), key=lambda zone: zone.contrast, default=None)


@pytest.mark.parametrize("size", [3, 4, 5, 8, 13])
def test_the_clearest_zone_is_that_of_the_definition_to_the_last_bit(size: int) -> None:
    random = Random(size)
    for drawn in range(30):
        levels = [random.uniform(-1, 1) for _ in range(2 + drawn)]  # few levels: contrasts that are equal
        values = tuple(
            tuple(None if random.random() < 0.1 else random.choice(levels) for _ in range(size)) for _ in range(size)
        )
        assert Runs(values).clearest() == by_definition(values)


def test_bounds_of_a_contrast_hold_it_and_its_extremes() -> None:
    values = ((1, 0, 0, 0), (0, 1, 0.9, 0), (0, 0.9, 1, 0), (0, 0, 0, 1))
    bounded = tuple(
        Score("similarity", "cosine", values[i][j], values[i][j] - 0.1, values[i][j] + 0.1, layer=i, other=j)
        for i in range(4)
        for j in range(i, 4)
    )
    assert Runs.bounds(ReportData({}, (), bounded), "cosine", 1, 2) == pytest.approx((0.7, 1.1))
    bare = rows(*((i, j, float(values[i][j])) for i in range(4) for j in range(i, 4)))
    assert Runs.bounds(bare, "cosine", 1, 2) is None
