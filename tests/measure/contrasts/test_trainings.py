"""Estimates over several trainings on one test set: simulated intervals, and rows compared with numpy."""

import numpy as np
import pytest
from scipy import stats

from layerwise.measure.contrasts.contrast import Part, PlanEffects, Resampled, replace_claims, take_first
from layerwise.measure.contrasts.shuffled import contrast_orders
from layerwise.measure.contrasts.trainings import average_trainings, contrast_pattern
from layerwise.measure.interventions.accuracy import Predictions
from layerwise.measure.interventions.survey import Survey
from layerwise.results.rows import Score
from layerwise.studies.diagnose.contrasts import contrast_sets

CHANCE = 0.2


def outcome(hits: np.ndarray, scored: np.ndarray | None = None) -> Predictions:
    counted = np.ones(hits.size) if scored is None else scored
    return Predictions(hits * counted, None, np.zeros(hits.size), counted)


def test_seeds_alone_give_students_interval() -> None:
    effects = [0.2, 0.3, 0.7]
    row = average_trainings(effects, np.zeros((3, 16)), 32).row("trained_order", "cost")
    low, high = stats.t.interval(0.95, 2, np.mean(effects), stats.sem(effects))
    assert (row.value, row.low, row.high) == pytest.approx((0.4, low, high))
    assert (row.measure, row.claim, row.metric, row.documents) == ("contrast", "trained_order", "cost", 32)


def test_variances_of_seeds_and_units_add_up() -> None:
    effects, influences = np.array([0.1, 0.2, 0.6]), np.random.default_rng(1).normal(size=(3, 16)) / 16
    influences -= influences.mean(axis=1, keepdims=True)
    found = average_trainings(effects, influences, 16)
    spreads = np.array([stats.sem(effects), np.sqrt(16 / 15 * np.square(influences.mean(axis=0)).sum())])
    far, near = (np.array([stats.t.ppf(share, of) for of in (2, 15)]) for share in (0.975, 0.8))
    assert found.half == pytest.approx(np.hypot(*(far * spreads)))
    assert found.mde == pytest.approx(np.hypot(*((far + near) / [0.88623, 0.98348] * spreads)), rel=1e-4)


@pytest.mark.parametrize(("seeds", "units"), [(1, 16), (5, 7)])
def test_too_few_trainings_have_no_interval(seeds: int, units: int) -> None:
    row = average_trainings(np.zeros(seeds), np.zeros((seeds, units)), 9).row("trained_order", "cost")
    assert (row.low, row.high, row.mde) == (None, None, None)


def test_rows_are_differences_of_accuracies_on_the_same_images() -> None:
    draw = np.random.default_rng(2)
    mask = np.repeat([0.0, 1.0], [4, 28])  # the first batch happened to be in its own order
    hits = {
        (variant, task): (draw.random((2, 32)) < 0.6).astype(float)
        for variant in ("baseline", "layershuffle")
        for task in ("sequential", "random", *(f"kept {kept} even sequential" for kept in (3, 2)))
    }
    variants = {
        variant: {
            seed: Survey(
                4,
                {
                    task: outcome(values[seed], mask if task == "random" else None)
                    for (owner, task), values in hits.items()
                    if owner == variant
                },
            )
            for seed in range(2)
        }
        for variant in ("baseline", "layershuffle")
    }
    found = {(row.claim, row.metric): row.value for row in contrast_orders(variants, chance=CHANCE, batch=4)}
    ordered, free = hits["baseline", "sequential"][:, 4:], hits["layershuffle", "random"][:, 4:]
    assert found["trained_order", "cost"] == pytest.approx(ordered.mean() - free.mean())
    gain = free.mean() - hits["baseline", "random"][:, 4:].mean()
    assert found["trained_order", "gain_above@baseline"] == pytest.approx(gain)
    assert found["collapse", "in_order"] == pytest.approx(hits["baseline", "sequential"].mean() - CHANCE)

    def lost(variant: str) -> float:
        whole, one, two = (
            hits[variant, task].mean(axis=1)
            for task in ("sequential", "kept 3 even sequential", "kept 2 even sequential")
        )
        # Least squares through the origin: slope (1 y1 + 2 y2) / 5 per layer, times two layers.
        return float(np.mean(2 * ((whole - one) + 2 * (whole - two)) / 5 / (whole - CHANCE)))

    assert found["pruning", "lost"] == pytest.approx(lost("layershuffle"))
    assert found["pruning", "spared_above@baseline"] == pytest.approx(lost("baseline") - lost("layershuffle"))
    assert not [key for key in found if key[1].endswith("@sequential")]


@pytest.mark.parametrize(("right", "is_there"), [((3, 7), False), ((4, 6), True)])
def test_a_seed_without_skill_has_no_share_lost(right: tuple[int, int], is_there: bool) -> None:
    of_seeds = [outcome(np.arange(20.0) < count) for count in right]
    tasks = ("sequential", "kept 3 even sequential", "kept 2 even sequential")
    one = {seed: Survey(4, dict.fromkeys(tasks, each)) for seed, each in enumerate(of_seeds)}
    found = contrast_orders({"baseline": one, "layershuffle": one}, chance=0.15, batch=2)
    assert all(np.isfinite(row.value) for row in found)
    assert bool([row for row in found if row.claim == "pruning"]) is is_there


def test_the_influence_of_a_batch_agrees_with_the_jackknife() -> None:
    draw = np.random.default_rng(3)
    tasks = ("sequential", "kept 3 even sequential", "kept 2 even sequential")
    hits = {
        variant: {task: (draw.random(4000) < 0.6).astype(float) for task in tasks}
        for variant in ("baseline", "layershuffle")
    }

    def spared(kept: slice) -> Score:
        variants = {
            variant: {seed: Survey(4, {t: outcome(v[kept]) for t, v in of.items()}) for seed in range(2)}
            for variant, of in hits.items()
        }
        return next(
            row for row in contrast_orders(variants, chance=CHANCE, batch=100) if row.metric == "spared_above@baseline"
        )

    whole = spared(slice(None))
    # The seeds are equal, so the jackknife over batches gives the same error.
    left = [spared(np.r_[0 : 100 * n, 100 * n + 100 : 4000]).value for n in range(40)]  # type: ignore[arg-type]
    jackknife = np.sqrt(39 / 40 * np.square(np.array(left) - np.mean(left)).sum())
    assert whole.value - whole.low == pytest.approx(stats.t.ppf(0.975, 39) * jackknife, rel=0.05)


def test_the_pattern_is_a_mean_over_layers_with_three_sources() -> None:
    first = np.array([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.2, 0.6, 0]])
    learned = np.array([[1.0, 0, 0, 0], [0.1, 0.9, 0, 0], [0.5, 0.1, 0.4, 0]])
    found = {row.metric: row.value for row in contrast_pattern("elc", np.stack([learned, learned]), first)}
    assert found == pytest.approx({"above_equal": 0.9 - 2 / 3, "learned": 0.1})
    assert contrast_pattern("elc", learned[None, :2], first[:2]) == []


def test_contrasts_of_other_claims_are_kept() -> None:
    stored = [Score("contrast", "value", 1.0, claim=name) for name in ("merging", "collapse")]
    fresh = [Score("contrast", "value", 2.0, claim="merging")]
    assert replace_claims(stored, fresh, ("merging",)) == [stored[1], fresh[0]]


def test_one_effect_has_the_error_of_a_mean() -> None:
    values = np.random.default_rng(4).normal(1.0, size=8)
    part = Part(values[None], np.ones(8), documents=8, tokens=80)
    drawn = Resampled.from_parts([part], seed=0, resamples=20_000)
    found, row = drawn.estimate(take_first), drawn.row("claim", "mean", take_first, power=0.9)
    assert found.error == pytest.approx(stats.sem(values), rel=0.02)
    assert (row.value, row.low, row.high) == (values.mean(), found.low, found.high)
    variant = max(found.value - found.low, found.high - found.value)
    assert row.mde == pytest.approx(variant + stats.t.ppf(0.9, 7) * found.error)
    few = Resampled.from_parts([part.select_units(range(7))], seed=0).row("claim", "mean", take_first)
    assert (few.value, few.low, few.high, few.mde) == (pytest.approx(values[:7].mean()), None, None, None)


def test_shares_are_of_the_variants_of_their_set() -> None:
    costs = [4.0, *[0.5] * 4, 2.0, *[0.3] * 4]
    part = Part(np.outer(costs, np.ones(8)), np.ones(8), documents=8, tokens=80)
    rows = contrast_sets(PlanEffects((), lambda keys: part, 0), {"set:4": range(4)})
    values = {row.metric: row.value for row in rows}
    assert values == pytest.approx(
        {"joint": 4.0, "singles": 2.0, "excess": 2.0, "share": 0.5, "share_of_noise": 0.4, "layers": 4.0}
    )
