"""Similarity matrices, and the clearest run of similar hidden states."""

import numpy as np
import pytest

from layerwise.page.data import ReportData
from layerwise.page.derived.zones import bound_contrast, compute_contrast, find_clearest_zone, read_similarities
from layerwise.results.rows import Score
from layerwise.studies.sweep.findings import list_findings


def rows(*pairs: tuple[int, int, float]) -> ReportData:
    return ReportData({}, (), tuple(Score("similarity", "cosine", value, state=i, to_state=j) for i, j, value in pairs))


def test_similarity_is_symmetric() -> None:
    found = read_similarities(rows((0, 0, 1.0), (0, 2, 0.5)), "cosine")
    expected = np.array([[1.0, np.nan, 0.5], [np.nan, np.nan, np.nan], [0.5, np.nan, np.nan]])
    assert np.array_equal(found, expected, equal_nan=True)
    assert read_similarities(rows((0, 2, 0.5)), "cosine") is None, "fewer pairs than states are no matrix"
    assert read_similarities(rows(), "cosine") is None
    chain = rows(*((state, state + 1, 0.5) for state in range(3000)))
    assert read_similarities(chain, "cosine") is None, "a few pairs of thousands of states are not a matrix"
    assert list_findings(chain) is list_findings(chain), "computed once, not once for each section"
    unbounded = np.array([[np.nan, np.nan], [np.nan, 1.0]])
    assert np.array_equal(read_similarities(rows((0, 1, 0.5), (1, 1, 1.0)), "cosine", "low"), unbounded, equal_nan=True)


def test_the_planted_zone_is_the_clearest() -> None:
    states = np.arange(13)
    planted = 0.5 + 0.4 * np.outer((states > 3) & (states < 9), (states > 3) & (states < 9))
    assert find_clearest_zone(planted) == (4, 8)
    assert find_clearest_zone(np.full((13, 13), 0.3)) == (1, 3)
    assert find_clearest_zone(planted[:4, :4]) is None
    assert compute_contrast(planted, 4, 8) == pytest.approx(0.4)


def test_bounds_contain_the_contrast_and_its_extremes() -> None:
    values = ((1, 0, 0, 0), (0, 1, 0.9, 0), (0, 0.9, 1, 0), (0, 0, 0, 1))
    bounded = tuple(
        Score("similarity", "cosine", values[i][j], values[i][j] - 0.1, values[i][j] + 0.1, state=i, to_state=j)
        for i in range(4)
        for j in range(i, 4)
    )
    assert bound_contrast(ReportData({}, (), bounded), "cosine", 1, 2) == pytest.approx((0.7, 1.1))
    bare = rows(*((i, j, float(values[i][j])) for i in range(4) for j in range(i, 4)))
    assert bound_contrast(bare, "cosine", 1, 2) is None
