"""Claims about what a score, a ranking or a router chooses, over many simulated runs of which the truth is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from layerwise.measure.contrasts.benchmark_scores import Scaled, StrategyScores
from layerwise.measure.contrasts.benchmarks import falls, shallowest
from layerwise.measure.contrasts.layer_agreement import layer_agreement
from layerwise.measure.interventions.sweep import plan_records
from layerwise.measure.stats.statistics import Numbers, student_interval
from layerwise.plan import Plan, families
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.selection import Rows
from layerwise.search.confirm import against_arms
from layerwise.search.routing.trial import verdict_rows
from report.claims import truths
from report.claims.benchmarked import benchmarked
from report.claims.repeated.scanned import losses
from report.claims.swept import DEPTH, WIDEST, swept
from report.claims.truths import CONTRADICTED, NOT_SO, NULL, SUPPORTED, Truth

# A search against one-shot scores

CHOSEN = Plan.parse("0-9")
ARMS = {
    "block_influence": Plan.parse("0-8 11"),
    "angular_distance": Plan.parse("0-7 10 11"),
    "sweep_effect": Plan.parse("0-6 9-11"),
    "deepest_keep_last": Plan.parse("0-5 8-11"),
}
RANDOM = tuple(Plan.parse(text) for text in ("0-4 7-11", "0-3 6-11", "0-2 5-11", "0 1 4-11"))


def searched(
    block: float, angular: float, sweep: float, random: float, *, documents: int = 48, noise: float = 0.02
) -> Truth:
    """The rows of a search whose arms lose so much more than the chosen plan; the deepest layers are no score."""
    above = dict(zip(ARMS, (block, angular, sweep, -1.0), strict=True))
    plans = {str(ARMS[name]): lost for name, lost in above.items()} | {str(plan): random for plan in RANDOM}

    def truth(run: int) -> list[Score]:
        own = losses({str(CHOSEN): 0.0, **plans}, run, documents, noise)
        return [
            *against_arms(own, CHOSEN, ARMS, RANDOM, "report", seed=run),
            *(Score("search", "arm", 1.0, plan=str(plan), arm=name) for name, plan in ARMS.items()),
            Score("search", "chosen", 1.0, plan=str(CHOSEN), condition="layers", against="layers=10"),
        ]

    return truth


SEARCHES = {
    "one_shot": {
        SUPPORTED: (searched(0.0, 0.1, 0.1, 0.5, documents=120), searched(-0.02, -0.02, 0.1, 0.5)),
        NULL: (searched(0.0, 0.0, 0.0, 0.0, documents=120),),
        CONTRADICTED: (searched(0.05, 0.1, 0.1, 0.5), searched(0.05, 0.05, 0.05, 0.05)),
    }
}
test_scores_are_judged_right = truths.simulated(SEARCHES, together=True)
test_one_search = truths.found(SEARCHES)
test_too_little_text_shows_no_difference = truths.seldom(
    {
        "one_shot": {
            f"{SUPPORTED}, {NULL}": (searched(0.011, 0.011, 0.011, 0.5), searched(0.011, 0.011, 0.011, 0.5, noise=0.3)),
            CONTRADICTED: (searched(0.009, 0.3, 0.3, 0.5), searched(0.009, 0.3, 0.3, 0.5, noise=0.3)),
        }
    }
)


@pytest.mark.nightly
@pytest.mark.parametrize("way", [-1, 1])
def test_a_loss_of_the_printed_resolution_is_seen(way: int) -> None:
    """All scores lose more than 0.01 by what is said to be seen, or one of them less by that."""
    world = searched(0.01, 0.01, 0.01, 0.5)
    said = truths.claim_of("one_shot", world(0), 12).power
    seen = float(np.mean([_number(truths.claim_of("one_shot", world(run), 12).power) for run in range(20)]))
    assert "nats to either side of 0.01" in said
    losing = (0.01 + seen,) * 3 if way > 0 else (0.01 - seen, 0.3, 0.3)
    truths.tells("one_shot", searched(*losing, 0.5), 12, CONTRADICTED if way > 0 else SUPPORTED)


def _number(power: str) -> float:
    return float(power.removeprefix("Of 100 such runs 80 would see ").partition(" ")[0])


# What can be removed, and what needs few bits

LAYERS, TYPES = 30, ("Q4_0", "Q5_0")
BAND = 1.96 / 29**0.5
REMOVED = np.linspace(0.1, 1.0, LAYERS)


class Changes(NamedTuple):
    """What a sweep of removals and types runs: the records, and the family, the type and the layer of each plan."""

    records: tuple[PlanRecord, ...]
    layers: Mapping[str, tuple[str, int]]


@cache
def changes() -> Changes:
    members = (*families.leave_one_out(LAYERS), *families.bits(LAYERS, TYPES))
    names = {str(member.plan): member.strategy for member in members if member.family == "bits"}
    layers = {
        str(member.plan): (names.get(str(member.plan), "removed"), number % LAYERS)
        for number, member in enumerate(members)
    }
    return Changes(tuple(plan_records(members)), layers)


def quantised(correlation: float, other: float | None = None, *, noise: float = 0.05, documents: int = 48) -> Truth:
    """Types whose costs rank the layers as their removal does, by so much; each run has another order."""

    def truth(run: int) -> list[Score]:
        draw = np.random.default_rng([run, 8])
        each = (correlation, correlation if other is None else other)
        costs = {name: correlated(rho, draw) for name, rho in zip(TYPES, each, strict=True)} | {"removed": REMOVED}
        effects = {plan: float(costs[name][layer]) for plan, (name, layer) in changes().layers.items()}
        own: list[Loss] = [
            row if row.plan != "0-11" else Loss(f"0-{LAYERS - 1}", *_rest(row))
            for row in losses(effects, run, documents, noise)
        ]
        return layer_agreement(own, changes().records, LAYERS, seed=run)

    return truth


def _rest(row: Loss) -> tuple[str, str, int, float, int, int]:
    return row.task, row.document, row.window, row.nll, row.tokens, row.hits


def correlated(rho: float, draw: np.random.Generator) -> Numbers:
    """Costs whose rank correlation with `REMOVED` is `rho`, to 0.02."""
    for _ in range(10_000):
        mixed = rho * stats.zscore(REMOVED) + (1 - rho**2) ** 0.5 * draw.standard_normal(LAYERS)
        ranks = stats.rankdata(mixed)
        if abs(stats.spearmanr(ranks, REMOVED).statistic - rho) < 0.02:
            return np.asarray(REMOVED[ranks.astype(int) - 1])
    raise AssertionError(rho)


BITS = {
    "few_bits": {
        SUPPORTED: (quantised(0.8),),
        NULL: (quantised(0.0), quantised(0.0, -0.1)),
        CONTRADICTED: (quantised(-0.8), quantised(0.8, -0.8)),
    }
}
test_bits_are_judged_right = truths.simulated(BITS, depth=LAYERS, together=True, nightly=True)
test_one_sweep_of_bits = truths.found(BITS, depth=LAYERS)
test_at_the_band_nothing_is_said = truths.seldom(
    {
        "few_bits": {
            SUPPORTED: (quantised(BAND - 0.03), quantised(BAND - 0.03, noise=1.0)),
            NOT_SO: (quantised(BAND + 0.03), quantised(BAND + 0.03, noise=1.0)),
        }
    },
    depth=LAYERS,
)


@pytest.mark.nightly
def test_an_agreement_of_the_printed_resolution_beyond_the_band_is_seen() -> None:
    """At both types the correlation exceeds the band by what 80 of 100 runs are said to see."""
    noise = 0.2
    world = quantised(0.65, noise=noise)
    seen = float(np.mean([_number(truths.claim_of("few_bits", world(run), LAYERS).power) for run in range(20)]))
    truths.tells("few_bits", quantised(BAND + seen, noise=noise), LAYERS, SUPPORTED)


# Rankings by the loss, and by benchmarks

STEEP = {"looped_parallel": 0.15, "random": 0.2, "parallel": 0.6, "reverse": 0.7, "skip": 0.85, "middle_repeat": 0.95}
TURNED = {**STEEP, "parallel": 0.05, "random": 0.45}


def both(steep: Mapping[str, float], *, documents: int = 500, draws: float = 0.1, shared: float = 0.8) -> Truth:
    """A sweep whose losses rank the strategies as published, and benchmarks that fall so steeply."""
    by_loss = swept(("shallowest",), lambda record: 2.0 * STEEP.get(record.strategy, 0.0) * record.affected / WIDEST)

    def of_benchmarks(scaled: Scaled, records: tuple[PlanRecord, ...], depth: int, *, seed: int) -> list[Score]:
        scores = StrategyScores.of(scaled, records, seed=seed)
        return [*shallowest(scores, depth), *falls(scores, depth)]

    by_score = benchmarked(
        lambda record, _: 1 - steep.get(record.strategy, 0.0) * record.affected / WIDEST,
        documents=documents,
        draws=draws,
        shared=shared,
        measure=of_benchmarks,
        resamples=400,
    )
    return lambda run: [*by_loss(run), *by_score(run)]


ALIKE = dict.fromkeys(STEEP, 0.95)
ORDERS = {
    "loss_and_reasoning": {
        SUPPORTED: (both(STEEP),),
        NULL: (both(ALIKE, documents=2_500, draws=0.01, shared=0.98),),
        CONTRADICTED: (both(TURNED),),
    }
}
test_two_rankings_are_judged_right = truths.simulated(ORDERS, depth=DEPTH, together=True, nightly=True)
test_few_questions_rank_nothing_otherwise = truths.seldom(
    {"loss_and_reasoning": {NOT_SO: (both(STEEP, documents=60),), SUPPORTED: (both(TURNED, documents=60),)}},
    depth=DEPTH,
)


def test_one_sweep_with_the_same_ranking() -> None:
    claim = truths.claim_of("loss_and_reasoning", both(STEEP)(0), DEPTH)
    assert claim.verdict == SUPPORTED, claim.line
    assert "By the loss 8 of 8 pairs have an order, by the benchmarks (arc_challenge, " in claim.figures
    assert claim.power.startswith("Of 100 such runs 80 would see ")


@pytest.mark.nightly
def test_orders_of_the_printed_resolution_are_seen() -> None:
    """On the benchmarks two strategies fall less than the others, by what is said to be seen of eight pairs."""

    def world(apart: float) -> Truth:
        milder = 0.5
        harsher = milder * (2 + apart) / (2 - apart)
        return both({name: milder if name in ("random", "looped_parallel") else harsher for name in STEEP})

    seen = 0.2
    for _ in range(3):
        said = (truths.claim_of("loss_and_reasoning", world(seen)(run), DEPTH).power for run in range(20))
        seen = float(np.mean([_number(power) for power in said]))
    truths.tells("loss_and_reasoning", world(seen), DEPTH, SUPPORTED)


# A router

QUESTIONS = 400


def routed(fixed: float, dealt: float, *, questions: int = QUESTIONS, sets: int = 2) -> Truth:
    """Task sets whose questions gain so much, each by itself, over fixed plans and over plans dealt out at random."""

    def truth(run: int) -> list[Score]:
        draw = np.random.default_rng([run, 9])
        rows = []
        for number in range(sets):
            shared = 0.3 * draw.standard_t(6, questions)
            for arm, gain in (("fixed", fixed), ("permuted", dealt)):
                values = gain + shared + 0.2 * draw.standard_normal(questions)
                mean = student_interval(values[None], np.ones(questions)).each()[0]
                rows.append(Score("route", "accuracy_gain", *mean.row(), task=f"set {number}", arm=arm))
        rows = [_tested(row, questions) for row in rows]
        return [*rows, *verdict_rows(Rows(rows), "accuracy", 0.02, 10.0)]

    return truth


def _tested(row: Score, questions: int) -> Score:
    """The row with the p-value of its interval, and what 80 of 100 would see."""
    assert row.high is not None
    error = (row.high - row.value) / stats.t.ppf(0.975, questions - 1)
    p = 2 * stats.t.sf(abs(row.value) / error, questions - 1)
    return replace(row, p=float(p), mde=float(error * (stats.t.ppf([0.975, 0.8], questions - 1).sum())))


ROUTERS = {
    "each_prompt": {
        SUPPORTED: (routed(0.1, 0.1),),
        NULL: (routed(0.1, 0.0, questions=12_000),),
        CONTRADICTED: (routed(0.0, 0.0, questions=12_000), routed(-0.1, 0.1), routed(-0.1, 0.0)),
    }
}
test_routers_are_judged_right = truths.simulated(ROUTERS, together=True)
test_one_router = truths.found(ROUTERS)
test_a_router_without_a_gain_shows_none = truths.seldom(
    {
        "each_prompt": {
            SUPPORTED: (routed(0.0, 0.0), routed(0.0, 0.1), routed(0.0, 0.0, questions=60), routed(0.1, 0.0)),
            NOT_SO: (routed(0.025, 0.025), routed(0.025, 0.025, questions=60)),
        }
    }
)


@pytest.mark.nightly
def test_a_gain_of_the_printed_resolution_is_seen() -> None:
    world = routed(0.05, 0.1, sets=1)
    seen = float(np.mean([_number(truths.claim_of("each_prompt", world(run), 12).power) for run in range(20)]))
    truths.tells("each_prompt", routed(seen, 0.2, sets=1), 12, SUPPORTED)
