"""Rank correlations compared with scipy, and the random score."""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from layerwise.measure.stats.agreement import NAMES, _chance, agreement, rank_correlations, rankings
from layerwise.measure.stats.ranks import fisher_interval
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

DEPTH = 12
VALUES = np.random.default_rng(0).normal(size=DEPTH)


def rows(measure: str, metric: str, values: Iterable[float], **columns: Any) -> list[Score]:
    return [Score(measure, metric, float(value), layer=layer, **columns) for layer, value in enumerate(values)]


def table(scores: Iterable[Score]) -> dict[str | None, Score]:
    return Rows(scores).where(metric="spearman", arm="skip").along("against")


few_values = st.lists(st.integers(-3, 3), min_size=5, max_size=5)


@given(few_values, few_values)
def test_correlations_equal_scipys_also_with_ties(left: list[int], right: list[int]) -> None:
    one, other = np.array([left], dtype=float), np.array([right], dtype=float)
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        assert np.isnan(rank_correlations(one, other)[0])
        return
    assert rank_correlations(one, other)[0] == pytest.approx(stats.spearmanr(left, right).statistic)


def test_a_score_agrees_with_itself_and_disagrees_with_its_opposite() -> None:
    scores = [
        *rows("ablation", "skip", VALUES),
        *rows("proxies", "block_influence", 2 * VALUES + 1),
        *rows("proxies", "gate_sensitivity", -VALUES),
    ]
    found = table(agreement(scores))
    assert found["block_influence"].value == found["block_influence"].high == 1.0
    assert found["gate_sensitivity"].value == found["gate_sensitivity"].low == -1.0
    assert -found["gate_sensitivity"].high == pytest.approx(found["block_influence"].low)
    assert found["block_influence"].low < 1.0, "an order in common of few layers is no proof of one"
    assert found["gate_sensitivity"].p < 0.001
    assert found["gate_sensitivity"].p <= found["gate_sensitivity"].p_adjusted < 0.002
    band = found["random_score"]
    assert band.value == 0.0
    assert -band.low == band.high < 1.0


def test_the_band_is_that_of_all_orders() -> None:
    orders = np.array(list(itertools.permutations(range(5))), dtype=float)
    exact = np.abs(rank_correlations(np.tile(np.arange(5.0), (120, 1)), orders))
    band = table(agreement(rows("ablation", "skip", range(5))))["random_score"].high
    assert band == pytest.approx(np.quantile(exact, 0.95), abs=0.11)


def test_p_counts_the_orders_that_agree_as_strongly_by_whole_numbers() -> None:
    """Sums of whole numbers over all 120 orders of five layers do not depend on rounding."""
    orders = np.array(list(itertools.permutations(range(5))), dtype=float)
    strength = np.abs(((orders - 2) * (np.arange(5) - 2)).sum(axis=1))
    null = np.abs(rank_correlations(np.tile(np.arange(5.0), (120, 1)), orders))
    for left in itertools.islice(itertools.permutations(range(5)), 0, None, 17):
        # The same rankings with reordered layers, whose sums round differently.
        values = rank_correlations(np.tile(np.array(left, dtype=float), (120, 1)), orders[:, list(left)])
        p = [_chance(float(value), null) for value in values]
        assert p == [(1 + int((strength >= own).sum())) / 121 for own in strength]


@pytest.mark.parametrize("layers", [4, 6, 30])
def test_the_interval_has_a_width_and_holds_the_correlation_of_the_process(layers: int) -> None:
    truth, left, right = np.random.default_rng(layers).normal(size=(3, 1000, layers))
    bounds = [fisher_interval(value, layers - 3) for value in rank_correlations(truth + left, truth + right)]
    assert all(low < high for low, high in bounds)
    # The correlation of ranks is 0.483 where that of the values is 0.5.
    assert sum(low <= 0.483 <= high for low, high in bounds) >= 900
    scores = [*rows("ablation", "skip", truth[0] + left[0]), *rows("proxies", "gate_sensitivity", truth[0] + right[0])]
    found = table(agreement(scores))["gate_sensitivity"]
    assert (found.low, found.high) == pytest.approx(bounds[0])


def test_rankings_are_read_from_their_rows() -> None:
    scores = [
        *rows("ablation", "random", VALUES),
        *rows("ablation", "skip", VALUES, part="attn"),
        *rows("ablation", "skip", VALUES, against="no_effect"),
        *rows("ablation", "skip", VALUES, task="prose"),
        *rows("proxies", "angular_distance", VALUES, amount=1.0),
        *rows("proxies", "angular_distance", -VALUES, amount=2.0),
        *rows("recovery", "area", VALUES, condition="noise_50", arm="layer"),
        *rows("recovery", "area", -VALUES, condition="equal_damage", arm="model"),
    ]
    found = rankings(scores)
    assert list(found) == ["random_weights", "angular", "recovery"]
    assert list(found["random_weights"].values()) == VALUES.tolist()
    assert list(found["angular"].values()) == VALUES.tolist()
    assert list(found["recovery"].values()) == (-VALUES).tolist()
    assert set(found) <= set(NAMES)


@pytest.mark.parametrize(
    ("others", "value"),
    [
        pytest.param(rows("proxies", "gate_sensitivity", VALUES)[7:], 1.0, id="five shared layers"),
        pytest.param(rows("proxies", "gate_sensitivity", VALUES)[9:], None, id="three shared layers"),
        pytest.param(rows("proxies", "gate_sensitivity", [1.0] * DEPTH), None, id="no variation"),
    ],
)
def test_pairs_are_over_four_shared_layers_that_vary(others: list[Score], value: float | None) -> None:
    found = table(agreement([*rows("ablation", "skip", VALUES), *others]))
    assert {name: row.value for name, row in found.items()} == {
        "random_score": 0.0,
        **({} if value is None else {"gate_sensitivity": value}),
    }
