import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from layerwise.measure.recovery.stability import MIN_NOTES, find_spikes, stability_rows
from layerwise.results.rows import Score
from row_names import named
from tier import by_tier


def curve(run: int, noise: float = 0.03, notes: int = 60) -> NDArray[np.float64]:
    steps = np.arange(notes)
    return np.asarray(4 + 5 * np.exp(-steps / 8) + noise * np.random.default_rng(run).standard_normal(notes))


def test_few_records_are_not_judged() -> None:
    assert find_spikes([3.0] * (MIN_NOTES + 4)) is None


def test_lasting_rise_is_one_spike() -> None:
    losses = curve(0)
    losses[30:33] += 1.0
    found = find_spikes(losses)
    assert (found[0], round(found[1], 1)) == (1, 1.0)


def test_non_finite_loss_is_a_spike() -> None:
    losses = curve(0)
    losses[40] = math.nan
    assert find_spikes(losses) == (1, math.inf)
    losses[40:42] = math.inf
    assert find_spikes(losses) == (1, math.inf)


@pytest.mark.simulated
@pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
def test_decreasing_loss_has_no_spike(noise: float) -> None:
    runs = by_tier(fast=100, nightly=1_000)
    assert sum((find_spikes(curve(run, noise)) or (0,))[0] > 0 for run in range(runs)) <= 0.03 * runs


@pytest.mark.simulated
def test_spike_of_eight_deviations_is_found() -> None:
    runs = by_tier(fast=50, nightly=500)
    right = 0
    for run in range(runs):
        losses = curve(run, 0.03)
        losses[40] += 8 * 0.03
        right += (find_spikes(losses) or (0,))[0] == 1
    assert right >= 0.95 * runs


def models(variant: str, losses: list[float], spike: int | None = None) -> list[Score]:
    rows = [Score("masked_lm", "nll", loss, variant=variant, seed=seed) for seed, loss in enumerate(losses)]
    for seed in range(len(losses)):
        noted = curve(seed)
        if seed == spike:
            noted[20] += 2.0
        rows += [
            Score("training", "train_loss", loss, variant=variant, seed=seed, step=step)
            for step, loss in enumerate(noted)
        ]
        rows.append(Score("training", "gradient_norm", 1.0 + seed, variant=variant, seed=seed))
    return rows


def test_rows_by_variant() -> None:
    base, wide = [3.0, 3.01, 2.99, 3.005, 2.995], [3.0, 3.3, 2.7, 3.2, 2.8]
    rows = stability_rows([*models("ltg", base), *models("elc", wide, spike=1)], "ltg")
    found = {(named(row), row.metric): row for row in rows}
    assert found["elc/1", "spikes"].value == 1.0
    assert found["elc/0", "spikes"].value == 0.0
    assert (found["ltg", "spiked"].value, found["elc", "spiked"].value) == (0.0, 0.2)
    spread, ratio = found["elc", "spread"], found["elc", "spread_ratio"]
    deviation, share = np.std(wide, ddof=1), np.var(wide, ddof=1) / np.var(base, ddof=1)
    ends = deviation * np.sqrt(4 / stats.chi2.ppf([0.975, 0.025], 4))
    assert (spread.value, spread.low, spread.high) == pytest.approx((deviation, *ends))
    ends = np.sqrt(share / stats.f.ppf([0.975, 0.025], 4, 4))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((np.sqrt(share), *ends))
    assert ratio.p == ratio.p_adjusted == pytest.approx(2 * stats.f.sf(share, 4, 4))
    assert ("ltg", "spread_ratio") not in found
    assert found["elc", "gradient_norm"].value == 3.0
