"""Routers on questions that they were not fitted to: what the arms are, and verdicts on planted truths."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from layerwise.measure.stats.statistics import student_interval
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.search.routing.router import RoutingTable
from layerwise.search.routing.trial import (
    GAIN,
    LAYERS,
    RoutedQuestions,
    RoutingDecision,
    RoutingDivision,
    best_mixture,
    decision,
    oracle,
    slope,
    verdict_rows,
)
from search.routing.planted_routing import PLANS, RIGHT, world

LIMIT, OWN, MARGIN = 11.0, 0.3, 0.02


def over_seeds(table: RoutingTable) -> RoutedQuestions:
    return RoutedQuestions.combined([RoutingDivision.folds(table, seed).within(LIMIT, OWN) for seed in range(3)])


def seen(table: RoutingTable, limit: float, own: float) -> RoutedQuestions:
    """The questions under the router that was fitted to these very ones."""
    return RoutingDivision.fitted_to(table, table, 0).within(limit, own)


def gains(outcome: RoutedQuestions) -> dict[str, Score]:
    return {str(row.arm): row for row in outcome.rows("route", "accuracy") if row.metric == "accuracy_gain"}


def decided(table: RoutingTable) -> RoutingDecision:
    rows = gains(over_seeds(table))
    return decision(rows["fixed"], rows["permuted"], MARGIN)


def test_no_question_is_routed_by_a_router_that_has_seen_it() -> None:
    table = world(200, 0)
    division = RoutingDivision.folds(table, 0)
    rows = np.concatenate([unseen for unseen, _ in division.parts])
    assert sorted(rows) == list(range(200))
    for number, (unseen, known) in enumerate(division.parts):
        other = table.scores.copy()
        other[unseen] = 1 - other[unseen]
        _, again = RoutingDivision.folds(replace(table, scores=other), 0).parts[number]
        assert (again.router().weights == known.router().weights).all()
        assert (again.scores == known.scores).all()


def test_the_means_of_the_gains_are_the_differences_of_the_means() -> None:
    outcome = RoutingDivision.folds(world(300, 1, effect=1.0), 0).within(LIMIT, OWN)
    means = {key: values.mean() for key, values in outcome.values.items()}
    arms = [arm for ending, arm in means if ending == GAIN]
    assert set(arms) == {"fixed", "hindsight", "permuted", "permuted_in_task", "random"}
    for arm in arms:
        assert means[GAIN, arm] == pytest.approx(means["", "router"] - means["", arm], abs=1e-12)


def test_errors_of_gains_alone_count_that_other_questions_would_have_fitted_another_router() -> None:
    table = world(100, 2, effect=1.0)
    for division, factor in (
        (RoutingDivision.folds(table, 0), 1.5),
        (RoutingDivision.fitted_to(table, table, 0), 2**0.5),
    ):
        outcome = division.within(LIMIT, OWN)
        for row, values in zip(outcome.rows("route", "accuracy"), outcome.values.values(), strict=True):
            plain = student_interval(values, np.ones(100)).each()[0]
            wider = factor if row.metric == "accuracy_gain" else 1.0
            assert row.high - row.value == pytest.approx(wider * (plain.high - plain.value))  # type: ignore[operator]
            assert (row.p is not None) == (row.mde is not None) == (row.metric == "accuracy_gain")


def test_the_time_of_the_router_counts_as_layers_that_fixed_plans_may_use() -> None:
    table = world(300, 1, effect=1.0)
    free, paid = (seen(table, 9.0 + own, own).values for own in (0.0, 2.0))
    assert paid[LAYERS, "router"] == pytest.approx(free[LAYERS, "router"] + 2.0)
    assert (paid["", "router"] == free["", "router"]).all()
    assert paid["", "hindsight"].mean() > free["", "hindsight"].mean()


def test_the_permuted_arm_is_the_mean_over_permutations() -> None:
    table = world(120, 2, effect=2.0)
    outcome = seen(table, LIMIT, 0.0)
    chance = np.random.default_rng(0)
    choices = table.router(LIMIT).choices(table.features)
    drawn = [table.scores[np.arange(120), chance.permutation(choices)].mean() for _ in range(4000)]
    error = np.std(drawn) / np.sqrt(len(drawn))
    assert outcome.values["", "permuted"].mean() == pytest.approx(np.mean(drawn), abs=5 * error)


def test_what_the_task_alone_says_is_no_gain_within_the_task() -> None:
    table = world(600, 3)
    right = (table.tasks == "a").astype(float)
    scores = np.stack([right, 1 - right, right, 1 - right, right], axis=1) * 0.0
    scores[:, 2], scores[:, 3] = right, 1 - right
    features = np.concatenate([table.features, right[:, None]], axis=1)
    found = gains(over_seeds(RoutingTable(PLANS, table.tasks, scores, features, 2)))
    assert found["permuted"].value == pytest.approx(0.5, abs=0.05)
    assert found["permuted_in_task"].value == pytest.approx(0.0, abs=0.01)


def test_the_oracles_are_ceilings_and_one_of_them_is_of_noise() -> None:
    outcome = over_seeds(world(300, 4, effect=1.0))
    means = {arm: values.mean() for (ending, arm), values in outcome.values.items() if not ending}
    assert means["oracle"] >= means["router"]
    assert means["oracle_of_noise"] > means["hindsight"]


def test_a_router_that_uses_one_plan_is_that_plan() -> None:
    table = world(200, 5)
    same = RoutingTable(PLANS, table.tasks, np.tile(np.array(RIGHT), (200, 1)), table.features, 2)
    rows = gains(seen(same, 20.0, 0.0))
    assert (rows["fixed"].value, rows["permuted"].value) == (0.0, 0.0)
    assert decision(rows["fixed"], rows["permuted"], MARGIN) == "equivalent"


# -- verdicts on planted truths ---------------------------------------------------------------------------------------


def test_a_prompt_that_determines_the_plan_is_found() -> None:
    assert [decided(world(300, seed, effect=2.0)) for seed in range(2)] == ["above", "above"]


def test_a_prompt_that_says_nothing_is_not_claimed() -> None:
    assert "above" not in [decided(world(300, seed)) for seed in range(2)]


@pytest.mark.parametrize("right", [RIGHT, (0.6,) * 5, (0.5, 0.55, 0.75, 0.75, 0.75)])
@pytest.mark.nightly
def test_how_often_nothing_is_called_above(right: tuple[float, ...]) -> None:
    runs = 60
    counts = Counter(decided(world(200, seed, right=right)) for seed in range(runs))
    print(f"nothing to know, {right}: {dict(counts)}")
    # 5 % at most: beyond the 99.9th percentile of that many runs is an error
    assert counts["above"] <= _most(runs)


@pytest.mark.nightly
def test_how_often_a_gain_beyond_the_margin_is_called_alike() -> None:
    runs = 60
    outcomes = [gains(over_seeds(world(300, seed, effect=0.7))) for seed in range(runs)]
    truth = float(np.mean([rows["fixed"].value for rows in outcomes]))
    assert truth > MARGIN
    counts = Counter(decision(rows["fixed"], rows["permuted"], MARGIN) for rows in outcomes)
    print(f"a gain of {truth:.3f}: {dict(counts)}")
    assert counts["equivalent"] + counts["below"] <= _most(runs)


def _most(runs: int) -> int:
    from scipy.stats import binom

    return int(binom.ppf(0.999, runs, 0.05))


def test_decisions_follow_the_rule() -> None:
    def gain(value: float, reach: float, p: float) -> Score:
        return Score("route", "accuracy_gain", value, value - reach, value + reach, p=p, mde=0.1)

    high, low, none = gain(0.1, 0.05, 0.001), gain(-0.1, 0.05, 0.001), gain(0.03, 0.05, 0.3)
    assert decision(high, high, MARGIN) == "above"
    assert decision(high, none, MARGIN) == "unresolved"  # luck in the choice of the fixed plans, perhaps
    assert decision(none, high, MARGIN) == "unresolved"
    assert decision(low, low, MARGIN) == "below"
    assert decision(gain(0.001, 0.01, 0.8), none, MARGIN) == "equivalent"
    assert decision(gain(0.001, 0.02, 0.8), none, MARGIN) == "unresolved"

    # Holm's correction runs over the task sets, and by itself over the pairs of sets.
    rows = [
        replace(gain(0.1, 0.05, p), arm=arm, task=task, condition=fitted)
        for arm in ("fixed", "permuted")
        for fitted, task, p in ((None, "a", 0.03), (None, "b", 0.04), ("a", "b", 0.03))
    ]
    margin, limit, *verdicts = verdict_rows(Rows(rows), "accuracy", MARGIN, LIMIT)
    assert (margin.value, limit.value, margin.condition) == (MARGIN, LIMIT, "accuracy")
    assert [(row.condition, row.task, row.metric) for row in verdicts] == [
        (None, "a", "unresolved"),
        (None, "b", "unresolved"),
        ("a", "b", "above"),
    ]
    assert [row.p_adjusted for row in verdicts] == pytest.approx([0.06, 0.06, 0.03])


SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mixture_is_the_best_of_all_mixtures_within_the_limit(seed: int) -> None:
    chance = np.random.default_rng(seed)
    layers = chance.integers(4, 12, 6).astype(float)
    scores, limit = chance.normal(size=6), float(chance.uniform(layers.min(), 13))
    shares = best_mixture(scores, layers, limit)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    assert shares @ layers <= limit + 1e-9
    best = linprog(-scores, A_ub=layers[None], b_ub=[limit], A_eq=np.ones((1, 6)), b_eq=[1])
    assert shares @ scores == pytest.approx(-best.fun, abs=1e-9)


def test_a_limit_below_the_cheapest_plan_takes_that_plan() -> None:
    assert best_mixture(np.array([0.1, 0.9]), np.array([6.0, 8.0]), 2.0).tolist() == [1.0, 0.0]


def test_a_layer_is_worth_the_slope_between_the_two_plans() -> None:
    scores, layers = np.array([0.2, 0.6]), np.array([6.0, 8.0])
    assert slope(best_mixture(scores, layers, 7.0), scores, layers) == pytest.approx(0.2)
    assert slope(best_mixture(scores, layers, 9.0), scores, layers) == 0.0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_oracle_is_the_best_assignment_of_plans_to_questions(seed: int) -> None:
    chance = np.random.default_rng(seed)
    layers = np.array([4.0, 6.0, 8.0])
    scores = chance.integers(0, 2, (7, 3)).astype(float)
    limit = float(chance.uniform(3.5, 8.5))
    each = np.kron(np.eye(7), np.ones((1, 3)))
    allowed = max(limit, 4.0) * 7
    best = linprog(-scores.ravel(), A_ub=np.tile(layers, 7)[None], b_ub=[allowed], A_eq=each, b_eq=np.ones(7))
    assert oracle(scores, layers, limit).mean() == pytest.approx(-best.fun / 7, abs=1e-5)
