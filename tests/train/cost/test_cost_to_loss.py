"""Comparisons at equal cost, and costs to reach a loss, with planted effects."""

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import sem, t, ttest_1samp

from layerwise.results.rows import Score
from layerwise.train.cost.convergence import (
    Curves,
    ValidationCurve,
    common_target,
    convergence_rows,
    score_curve,
    tuning_convergence_rows,
)
from layerwise.train.cost.frontier import (
    COSTS,
    CostPoint,
    compare_at_cost,
    cost_to_loss,
    descending,
    difference_at,
    loss_at,
    saving_rows,
)
from row_names import named
from train.cost.planted_frontiers import frontiers


def points(*pairs: tuple[float, float]) -> list[CostPoint]:
    return [CostPoint(loss, {"flops": cost}) for cost, loss in pairs]


@given(
    costs=st.lists(st.floats(1.0, 1e9), min_size=2, max_size=6, unique_by=lambda cost: round(log(cost), 3)).map(sorted),
    steps=st.lists(st.floats(0.01, 1.0), min_size=6, max_size=6),
)
def test_cost_of_a_reached_loss_is_exact(costs: list[float], steps: list[float]) -> None:
    losses = [5.0 - sum(steps[:number]) for number in range(len(costs))]
    found = [cost_to_loss(costs, losses, loss) for loss in losses]
    assert [each.cost for each in found] == pytest.approx(costs)
    assert all(each.censored == "exact" for each in found)


@given(losses=st.lists(st.floats(0.0, 9.0), min_size=1, max_size=8))
def test_isotonic_losses_keep_their_mean(losses: list[float]) -> None:
    found = descending(losses)
    assert found == sorted(found, reverse=True)
    assert sum(found) == pytest.approx(sum(losses))
    assert descending(found) == pytest.approx(found)


def test_cost_is_interpolated_in_logarithms_without_extrapolation() -> None:
    costs, losses = [1.0, 2.0, 4.0], [4.0, 3.0, 2.0]
    between = cost_to_loss(costs, losses, 2.5)
    assert between.cost == pytest.approx(exp((log(2) + log(4)) / 2))
    assert cost_to_loss(costs[::-1], losses[::-1], 2.5) == between
    assert cost_to_loss(costs, losses, 1.9).censored == "never"
    assert cost_to_loss(costs, losses, 4.1).censored == "sooner"


def saved(variant: Mapping[int, Sequence[CostPoint]], uniform: Mapping[int, CostPoint]) -> dict[str, Score]:
    for_both = [{seed: _with_seconds(each) for seed, each in of.items()} for of in (variant, uniform)]
    return {row.metric: row for row in saving_rows("a", *for_both) if row.unit == "flops"}


def _with_seconds(given: Any) -> Any:
    if isinstance(given, CostPoint):
        return CostPoint(given.loss, {"seconds": 1.0, **given.costs})
    return [_with_seconds(each) for each in given]


def test_a_seed_that_never_reaches_the_loss_leaves_one_bound() -> None:
    reference = {seed: CostPoint(3.0, {"flops": 2.0}) for seed in range(3)}
    variant = {0: points((1.0, 4.0), (1.5, 2.9)), 1: points((1.0, 4.0), (1.5, 2.8)), 2: points((1.0, 4.0), (1.5, 3.2))}
    found = saved(variant, reference)
    assert found["never"].value == 1
    assert "saving" in saved({seed: variant[seed] for seed in (0, 1)}, reference)
    assert found["saving_at_most"].low is None
    assert found["saving_at_most"].value > 0.25, "the third seed spent three quarters of uniform's, and needed more"


def test_a_seed_that_starts_below_the_loss_leaves_one_bound() -> None:
    reference = {seed: CostPoint(3.0, {"flops": 2.0}) for seed in range(2)}
    soon, late = points((1.0, 2.5), (1.5, 2.0)), points((1.0, 4.0), (1.5, 3.5))
    found = saved({0: soon, 1: points((1.0, 3.0), (1.5, 2.0))}, reference)
    assert (found["sooner"].value, found["saving_at_least"].value) == (1, pytest.approx(0.5))
    assert saved({0: soon, 1: late}, reference) == {}
    assert saved({7: soon}, reference) == {}


def test_cost_intervals_use_student_t_on_logarithms() -> None:
    spent, whole = (70.0, 80.0, 95.0), (100.0, 90.0, 120.0)
    variant = {seed: points((1.0, 4.0), (cost, 3.0), (200.0, 2.0)) for seed, cost in enumerate(spent)}
    uniform = {seed: CostPoint(3.0, {"flops": cost}) for seed, cost in enumerate(whole)}
    found = saved(variant, uniform)["saving"]
    logs = np.log(np.array(spent) / np.array(whole))
    low, high = t.interval(0.95, 2, loc=logs.mean(), scale=sem(logs))
    expected = tuple(1 - exp(each) for each in (logs.mean(), high, low))
    assert (found.value, found.low, found.high) == pytest.approx(expected)
    alone = saved({0: variant[0]}, {0: uniform[0]})["saving"]
    assert (alone.value, alone.low, alone.high) == (pytest.approx(0.3), None, None)


@pytest.mark.parametrize("truth", [-0.1, 0.0, 0.13, 0.4, 0.54])
def test_a_planted_saving_is_recovered(truth: float) -> None:
    variant, uniform = frontiers(truth, seeds=3, noise=0.0, draw=0)
    exact = saved(variant, {seed: lengths[-1] for seed, lengths in uniform.items()})["saving"]
    assert exact.value == pytest.approx(truth, abs=0.03)


LENGTHS = (0.8, 1.0, 1.25, 1.5, 2.0)
INTERCEPTS = {0: 5.0, 1: 5.3, 2: 4.9}
"""The spread over seeds, far above any planted effect."""


def law(seed: int, length: float) -> float:
    return INTERCEPTS[seed] - 0.7 * log(length)


def point(seed: int, length: float, *, loss: float | None = None, seconds: float | None = None) -> CostPoint:
    taken = length if seconds is None else seconds
    costs = {"flops": 1e9 * length, "seconds": 60 * taken}
    return CostPoint(law(seed, length) if loss is None else loss, costs)


def reference() -> Mapping[int, Sequence[CostPoint]]:
    return {seed: [point(seed, length) for length in LENGTHS] for seed in INTERCEPTS}


@given(
    costs=st.lists(st.floats(1.0, 1e12), min_size=2, max_size=6, unique_by=lambda cost: round(log(cost), 3)),
    losses=st.lists(st.floats(0.0, 10.0), min_size=6, max_size=6),
    share=st.floats(0.0, 1.0),
)
def test_frontier_losses_are_exact_at_trainings(costs: list[float], losses: list[float], share: float) -> None:
    lengths = points(*zip(costs, losses, strict=False))
    assert [loss_at(lengths, cost, "flops") for cost in costs] == pytest.approx(losses[: len(costs)], abs=1e-9)
    (first, one), (second, other) = sorted(zip(costs, losses, strict=False))[:2]
    between = exp(log(first) + share * (log(second) - log(first)))
    low, high = sorted((one, other))
    assert low - 1e-9 <= loss_at(lengths, between, "flops") <= high + 1e-9


@given(slope=st.floats(-2.0, 2.0), cost=st.floats(0.795, 2.015))
def test_a_log_linear_frontier_is_exact_without_extrapolation(slope: float, cost: float) -> None:
    lengths = points(*((length, 4.0 + slope * log(length)) for length in LENGTHS))
    assert loss_at([*lengths, *points((2.0, 0.0))], cost, "flops") == pytest.approx(4.0 + slope * log(cost), abs=1e-9)
    assert loss_at(lengths, 0.78, "flops") is loss_at(lengths, 2.03, "flops") is None


@pytest.mark.parametrize("effect", [-0.2, 0.0, 0.05])
def test_a_planted_effect_is_recovered_at_every_cost(effect: float) -> None:
    lengths = {"flops": 1.0, "seconds": 0.9}
    jitter = {0: 0.001, 1: -0.001, 2: 0.0}
    for cost, length in lengths.items():
        variant = {
            seed: CostPoint(law(seed, length) + effect + jitter[seed], {"flops": 1e9, "seconds": 60 * 0.9})
            for seed in INTERCEPTS
        }
        found = difference_at(variant, reference(), cost)
        assert found.value == pytest.approx(effect, abs=1e-9)
        assert found.low < effect < found.high
        assert found.high - found.low < 0.01, "seeds are paired: what they differ by cancels out"


def test_unequal_costs_are_not_compared() -> None:
    variant = {seed: CostPoint(law(seed, 1.4), {"flops": 1e9, "seconds": 60 * 1.4}) for seed in INTERCEPTS}
    by = {cost: difference_at(variant, reference(), cost) for cost in COSTS}
    assert by["seconds"].value == pytest.approx(0.0, abs=1e-9)
    assert by["flops"].value == pytest.approx(-0.7 * log(1.4), abs=1e-9)


def test_rows_name_variants_and_cost() -> None:
    variants = {
        "published": {seed: point(seed, 1.0, loss=law(seed, 1.0) + 0.3 + 0.01 * seed) for seed in INTERCEPTS},
        "ramp": {seed: point(seed, 1.0, loss=law(seed, 1.0) - 0.01 * (seed - 1)) for seed in INTERCEPTS},
    }
    rows, notes = compare_at_cost(variants, reference())
    assert not notes
    assert {(row.measure, row.variant, row.against, row.unit, row.metric) for row in rows} == {
        ("growth", variant, "uniform", cost, metric)
        for variant in variants
        for cost in COSTS
        for metric in ("difference", "at")
    }
    flops = {(row.variant, row.metric): row for row in rows if row.unit == "flops"}
    assert flops["published", "at"].value == 1e9
    worse, same = flops["published", "difference"], flops["ramp", "difference"]
    assert worse.value == pytest.approx(0.31)
    assert worse.p_adjusted == pytest.approx(2 * worse.p), "Holm over the two variants"
    assert worse.p_adjusted < 0.05
    assert worse.mde is not None
    assert same.p_adjusted > 0.5


def test_costs_beyond_the_frontier_are_noted() -> None:
    variants = {"slow": {seed: point(seed, 1.0, seconds=2.5 if seed == 1 else 1.0) for seed in INTERCEPTS}}
    rows, notes = compare_at_cost(variants, reference())
    assert {row.unit for row in rows if row.metric == "difference"} == {"flops"}
    assert {row.unit for row in rows if row.metric == "at"} == set(COSTS)
    (note,) = notes
    assert note.startswith("slow is not compared with uniform at equal seconds")


def test_without_a_frontier_only_equal_costs_are_compared() -> None:
    costs = {"flops": 1.009e9, "seconds": 60 * 1.04}
    variants = {"stacking": {seed: CostPoint(law(seed, 1.0) - 0.1, costs) for seed in INTERCEPTS}}
    plain = {seed: [point(seed, 1.0)] for seed in INTERCEPTS}
    rows, notes = compare_at_cost(variants, plain)
    assert not notes
    assert {(row.unit, row.metric) for row in rows} == {
        (cost, metric) for cost in ("flops", "seconds") for metric in ("difference", "at")
    }
    assert all(row.value == pytest.approx(-0.1) for row in rows if row.metric == "difference")
    one_off = {**variants["stacking"], 1: CostPoint(4.0, {**costs, "flops": 1.02e9})}
    assert {row.unit for row in compare_at_cost({"stacking": one_off}, plain)[0]} == {"seconds"}
    assert compare_at_cost({"stacking": {7: plain[0][0]}}, plain) == ([], [])


def test_a_single_seed_has_no_interval() -> None:
    found = difference_at({0: point(0, 1.0, loss=law(0, 1.0) + 0.25)}, reference(), "flops")
    assert (found.value, found.low, found.p, found.seeds) == (pytest.approx(0.25), None, None, 1)


def trainings(ratio: float, run: int, seeds: int = 5, noise: float = 0.004) -> dict[str, dict[int, ValidationCurve]]:
    chance = np.random.default_rng(run)
    steps = np.unique(np.geomspace(20, 1_000, 20).astype(int))
    curves: dict[str, dict[int, ValidationCurve]] = {"ltg": {}, "elc": {}}
    for seed in range(seeds):
        own = np.exp(0.05 * chance.standard_normal())  # some seeds are faster, in both variants
        for variant, speed in (("ltg", 1.0), ("elc", ratio * np.exp(0.03 * chance.standard_normal()))):
            losses = 3 + 6 * (steps / (own * speed)) ** -0.4 + noise * chance.standard_normal(len(steps))
            curves[variant][seed] = ValidationCurve(
                tuple(steps.tolist()), tuple(losses.tolist()), 0.5 if variant == "ltg" else 0.6
            )
    return curves


def row(rows: list[Score], name: str, cost: str | None, metric: str) -> Score:
    return next(each for each in rows if (named(each), each.unit, each.metric) == (name, cost, metric))


def test_the_default_target_is_reached_by_all_trainings() -> None:
    curves = {**trainings(0.8, 0), "slow": trainings(1.5, 1)["elc"]}
    rows = convergence_rows(curves, "ltg")
    assert row(rows, "all", None, "loss").value == common_target(curves["ltg"])
    targets = {each.variant: each.value for each in rows if each.metric == "loss" and each.variant}
    assert targets["slow"] == common_target(curves["ltg"], curves["slow"]) > common_target(curves["ltg"])
    assert all(each.low is not None for each in rows if each.metric == "ratio")


def test_equal_variants_have_a_ratio_of_one() -> None:
    """A target at the reference's worst seed would favor the variant."""
    faster = []
    for run in range(100):
        ratio = row(convergence_rows(trainings(1.0, run), "ltg"), "elc - ltg", "steps", "ratio")
        assert ratio.low is not None
        faster.append(ratio.value < 1)
    turned = row(convergence_rows(trainings(1.0, 99), "elc"), "ltg - elc", "steps", "ratio")
    assert turned.value == pytest.approx(1 / ratio.value)
    assert 0.4 < np.mean(faster) < 0.6


def test_a_target_reached_before_the_first_log_entry_leaves_a_bound() -> None:
    curves = trainings(1.0, 0)
    changed = {**curves["elc"], 0: ValidationCurve((20, 1_000), (3.0, 2.0), 0.6)}
    rows = convergence_rows({**curves, "elc": changed}, "ltg")
    cost, ratio = row(rows, "elc", "steps", "cost"), row(rows, "elc - ltg", "steps", "ratio")
    assert (cost.low, cost.high) == (None, None)
    assert (ratio.low, ratio.high, ratio.p) == (None, None, None)
    assert ratio.value < 1


def test_a_reference_is_required() -> None:
    assert convergence_rows({"elc": trainings(1.0, 0)["elc"]}, "ltg") == []
    assert tuning_convergence_rows({"rte": {"elc": tuned(1.0)["elc"]}}, "ltg") == []


def test_ratio_intervals_use_student_t_on_logarithms() -> None:
    spent = {"ltg": (100, 140, 90), "elc": (60, 100, 80)}
    curves = {
        variant: {seed: ValidationCurve((10, cost, 500), (5.0, 3.6, 3.6)) for seed, cost in enumerate(costs)}
        for variant, costs in spent.items()
    }
    ratio = row(convergence_rows(curves, "ltg"), "elc - ltg", "steps", "ratio")
    logs = np.log(np.array(spent["elc"]) / np.array(spent["ltg"]))
    interval = t.interval(0.95, 2, loc=logs.mean(), scale=sem(logs))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx(tuple(np.exp([logs.mean(), *interval])))
    assert ratio.p == pytest.approx(ttest_1samp(logs, 0).pvalue)


STEPS = tuple(int(step) for step in np.unique(np.geomspace(1, 40, 30).round()))


def tuned(ratio: float, run: int = 0, best: float = 0.8) -> Curves:
    chance = np.random.default_rng(run)

    def curve(speed: float) -> dict[int, float]:
        return {step: best - (best - 0.5) * float(np.exp(-step / (30 * speed))) for step in STEPS}

    spread = {seed: float(np.exp(0.05 * chance.standard_normal())) for seed in range(5)}
    return {
        "ltg": {seed: score_curve(curve(own), 0.1) for seed, own in spread.items()},
        "elc": {seed: score_curve(curve(own * ratio), 0.2) for seed, own in spread.items()},
    }


def found(rows: list[Score]) -> dict[tuple[str, str, str | None, str], Score]:
    return {(named(row), row.task, row.unit, row.metric): row for row in rows}


def test_planted_ratios_are_recovered_per_task_and_overall() -> None:
    rows = found(tuning_convergence_rows({"rte": tuned(0.5), "mrpc": tuned(0.9, 1)}, "ltg"))
    for task, ratio in (("rte", 0.5), ("mrpc", 0.9), ("all", 0.45**0.5)):
        steps, seconds = (rows["elc - ltg", task, cost, "ratio"] for cost in ("steps", "seconds"))
        assert steps.value == pytest.approx(ratio, rel=0.05)
        assert seconds.value == pytest.approx(2 * steps.value)
        assert steps.p_adjusted is not None


def test_the_target_score_is_the_highest_reached_by_all_references() -> None:
    curves = tuned(0.5)
    rows = found(tuning_convergence_rows({"rte": curves}, "ltg"))
    lowest = min(1 - curve.losses[-1] for curve in curves["ltg"].values())
    assert rows["all", "rte", None, "score"].value == pytest.approx(lowest)
    assert not [key for key in rows if key[1] == "all"], "of one task there is nothing over tasks"
