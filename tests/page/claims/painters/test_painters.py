"""The findings on the Painters paper are right on planted sweeps, cosines, tasks and benchmarks."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pytest

from layerwise.measure.activations.similarity import DocumentCosines, middle_states, same_space
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.studies.sweep.contrasts import contrast_order, contrast_order_by_task
from page.claims.benchmarked import DEPTH as BENCHMARK_DEPTH
from page.claims.benchmarked import Planted, fall_linearly, simulate_benchmarks
from page.claims.swept import DEPTH, WIDEST, Cost, cost_by_strategy, simulate_sweep
from page.claims.truths import (
    CONTRADICTED,
    NULL,
    SUPPORTED,
    Table,
    Truth,
    judge_rows,
    make_planted_test,
    make_simulated_test,
)
from page.synthetic import plan_records

LITTLE = {"documents": 10, "shape": 0.5, "noise": 0.4}  # few documents, and a few of those carry most
MUCH = {"documents": 200, "noise": 0.03, "draws": 0.01}


def curved(power: float, scale: float = 1.0) -> Cost:
    return lambda record: scale * (record.affected / WIDEST) ** power * (record.strategy == "skip")


def three_passes(one: float, three: float, gain: float) -> Cost:
    harm = {"parallel": one, "looped_parallel": three, "gain=3": gain}
    return cost_by_strategy(**harm)


def ranked(*order: str, step: float = 0.3) -> Cost:
    return cost_by_strategy(**{name: 1 + step * index for index, name in enumerate(order)})


PLANTED: Mapping[str, Mapping[str, tuple[Cost, ...]]] = {
    "all_needed": {SUPPORTED: (curved(2.5),), NULL: (curved(1.0),), CONTRADICTED: (curved(0.4), curved(0.0))},
    "same_function": {
        SUPPORTED: (cost_by_strategy(skip=1, middle_repeat=1.3),),
        NULL: (cost_by_strategy(skip=1, middle_repeat=1),),
        CONTRADICTED: (cost_by_strategy(skip=1, middle_repeat=0.7), cost_by_strategy(skip=1, middle_repeat=0.002)),
    },
    "any_order": {
        SUPPORTED: (cost_by_strategy(skip=1, reverse=0.7, random=0.6),),
        NULL: (cost_by_strategy(skip=1, reverse=1, random=0.6),),
        CONTRADICTED: (cost_by_strategy(skip=1, reverse=1.4, random=0.6), cost_by_strategy(skip=1, random=0.3)),
    },
    "parallel": {
        SUPPORTED: (cost_by_strategy(skip=1, parallel=0.7, reverse=0.5),),
        NULL: (cost_by_strategy(skip=1, parallel=1, reverse=0.5),),
        CONTRADICTED: (
            cost_by_strategy(skip=1, parallel=1.4, reverse=0.5),
            cost_by_strategy(skip=1, parallel=0.5, reverse=0.7),
        ),
    },
    "looping": {
        SUPPORTED: (three_passes(1, 0.6, 0.8),),
        NULL: (three_passes(1, 0.6, 0.6), three_passes(1, 0.6, 0.4)),
        CONTRADICTED: (three_passes(1, 1, 0.6), three_passes(1, 1.3, 1)),
    },
    "ranking": {
        SUPPORTED: (ranked(*PAINTERS_RANKING), ranked(*PAINTERS_RANKING[::-1][-2:], *PAINTERS_RANKING[2:])),
        NULL: (ranked(*PAINTERS_RANKING, step=0.0),),
        CONTRADICTED: (ranked(*PAINTERS_RANKING[::-1]), ranked("middle_repeat", *PAINTERS_RANKING[:-1])),
    },
}
FAMILIES = {"looping": ("painters", "gain_sweep")}


def run(rule: str, cost: Cost, families: tuple[str, ...] | None = None, **settings: float) -> Truth:
    return simulate_sweep([rule], cost, families=families or FAMILIES.get(rule, ("painters",)), **settings)  # type: ignore[arg-type]


def worlds(*settings: Mapping[str, float]) -> Table:
    return {
        rule: {kind: [run(rule, cost, **each) for cost in costs for each in settings] for kind, costs in kinds.items()}
        for rule, kinds in PLANTED.items()
    }


test_a_planted_cost_is_found = make_planted_test(worlds(MUCH), depth=DEPTH)
test_a_planted_cost_is_found_in_most_runs = make_simulated_test(worlds(MUCH), depth=DEPTH, nightly=True)
test_no_verdict_is_wrong_in_more_than_five_of_a_hundred_runs = make_simulated_test(
    worlds({}, LITTLE), depth=DEPTH, least=0.0, nightly=True
)


@pytest.mark.parametrize("rule", PLANTED)
def test_rows_without_intervals_are_inconclusive(rule: str) -> None:
    claim = judge_rows(rule, run(rule, PLANTED[rule][SUPPORTED][0], documents=7)(0), DEPTH)
    assert claim.verdict == "inconclusive"
    assert "fewer than 8 documents" in claim.answer


STATED = 16
STATES = np.arange(STATED + 1)
DISTANCE = np.abs(STATES[:, None] - STATES)
INSIDE = np.isin(STATES, middle_states(STATED))
ZONE = np.outer(INSIDE, INSIDE).astype(float)
LATE = (STATES[:, None] + STATES) / (2 * STATED)


def cosines(cosine: Numbers, elsewhere: Numbers | float = 0.0, documents: int = 24, spread: float = 0.2) -> Truth:
    def truth(run: int) -> list[Score]:
        draw = np.random.default_rng(run)
        tokens = np.round(draw.lognormal(4.0, 0.7, documents)) + 1
        tail = draw.standard_t(4, documents)[:, None, None]
        error = 0.02 * draw.standard_normal((documents, STATED + 1, STATED + 1))
        own = cosine + spread * tail * (ZONE - 0.5) + error
        other = np.broadcast_to(elsewhere, own.shape)
        weights = tokens[:, None, None]
        rows = DocumentCosines(weights * own, weights * other, tokens)
        return same_space(rows, rows, seed=run, resamples=200)

    return truth


SPACES = {
    SUPPORTED: ((0.3 + 0.5 * ZONE,), (0.9**DISTANCE * (0.5 + 0.5 * ZONE),)),  # zones, and distance too
    # Distance, a trend too, or what other documents share.
    NULL: ((0.9**DISTANCE,), (0.9**DISTANCE - 0.4 * LATE,), (0.3 + 0.5 * ZONE, 0.5 * ZONE)),
    CONTRADICTED: ((np.full_like(ZONE, 0.8),), (0.8 - 0.3 * ZONE,)),  # all alike, the middle less alike
}


def spaces(spread: float) -> Table:
    return {
        "same_space": {
            kind: [cosines(*world, documents=200, spread=spread) for world in planted]
            for kind, planted in SPACES.items()
        }
    }


test_planted_cosines_are_found = make_planted_test(spaces(0.02), depth=STATED)
test_planted_cosines_are_found_in_most_runs = make_simulated_test(spaces(0.05), depth=STATED, nightly=True)


BASELINE, ABSENT = "0-7", "0-2 6 7"
MOVED = {"reverse": ["0-2 5-3 6 7"], "random": ["0-2 4 3 5-7", "0-3 5 4 6 7"], "parallel": ["0-2 (3|4|5) 6 7"]}
TASKS = ("stdlib", "arithmetic", "copy")


def effects(
    run: int,
    text: tuple[float, float],
    reasoning: tuple[float, float],
    *,
    documents: int = 32,
    answers: tuple[str, ...] = ("arithmetic", "copy"),
) -> Iterator[Score]:
    generator, noise = np.random.default_rng([run, 41]), 0.3
    costs = {"stdlib": text, "arithmetic": reasoning, "copy": (50.0, 1.0)}
    losses = []
    for task in TASKS:
        moved, absent = costs[task]
        for document in range(documents):
            tokens = int(generator.integers(5, 60))
            shared = generator.standard_t(4) * noise
            values = {BASELINE: 0.0, ABSENT: absent * (1 + shared) + generator.normal() * noise * absent}
            for plan in (plan for plans in MOVED.values() for plan in plans):
                values[plan] = moved * (1 + shared) + generator.normal() * noise * moved
            for plan, value in values.items():
                losses.append(Loss(plan, task, f"{document:03}", 0, (3.0 + value) * tokens, tokens, 0))
    yield from contrast_order_by_task(losses, BASELINE, MOVED, ABSENT, answers, seed=run)


ordered = partial(effects, text=(0.5, 0.5))
test_planted_costs_of_order_are_found_in_most_runs = make_simulated_test(
    {
        "order_by_task": {
            SUPPORTED: (partial(ordered, reasoning=(2.0, 0.5)),),
            CONTRADICTED: (partial(effects, text=(2.0, 0.5), reasoning=(0.5, 0.5)),),
            NULL: (partial(ordered, reasoning=(2.0, 2.0), documents=200),),
        },
    },
    together=True,
    nightly=True,
)


def test_the_copy_task_does_not_count_as_reasoning() -> None:
    claim = judge_rows("order_by_task", ordered(0, reasoning=(2.0, 0.5)), 8)
    assert claim.verdict == SUPPORTED
    assert "Reasoning tasks: arithmetic; other tasks: stdlib." in claim.answer
    only_copying = ordered(0, reasoning=(2.0, 0.5), answers=("copy",))
    assert judge_rows("order_by_task", only_copying, 8).verdict == "not measured"


def test_order_is_compared_at_the_window_nearest_to_half_of_the_depth() -> None:
    """Windows of 8 layers are 7, 5, 3 and 1 wide; of the equally near 3 and 5, the narrower one counts."""
    records = plan_records(8, ("painters",))
    own = {name: [row.plan for row in records if (row.strategy, row.affected) == (name, 3)] for name in MOVED}
    (absent,) = (row.plan for row in records if (row.strategy, row.affected) == ("skip", 3))
    seen = {BASELINE, *own["reverse"]}
    own["random"] = [plan for plan in dict.fromkeys(own["random"]) if plan not in seen]
    draw = np.random.default_rng(0)
    losses = [
        Loss(plan, task, f"{document:02}", 0, float(draw.gamma(9.0)), 3, 0)
        for plan in dict.fromkeys([BASELINE, *(row.plan for row in records)])
        for task in TASKS
        for document in range(9)
    ]
    rows = contrast_order(losses, records, 8, ("arithmetic", "copy"), seed=3)
    expected = contrast_order_by_task(losses, BASELINE, own, absent, ("arithmetic", "copy"), seed=3)
    assert len(own["random"]) > 1
    assert {row.metric: row.value for row in rows} == pytest.approx({row.metric: row.value for row in expected})
    assert len(rows) == 2
    assert contrast_order([row for row in losses if row.plan != BASELINE], records, 8, ("arithmetic",)) == []


def kinds(order: float, absence: float, reasoning_order: float, reasoning_absence: float) -> Planted:
    def score(record: PlanRecord, name: str) -> float:
        is_reasoning = name.startswith(("arc", "gsm8k"))
        moved, absent = (reasoning_order, reasoning_absence) if is_reasoning else (order, absence)
        return fall_linearly(record, absent if record.strategy == "skip" else moved)

    return score


BENCHMARKED: Mapping[str, tuple[Planted, ...]] = {
    SUPPORTED: (kinds(0.3, 0.6, 0.6, 0.6),),
    NULL: (kinds(0.3, 0.4, 0.52, 0.69),),
    CONTRADICTED: (kinds(0.6, 0.6, 0.3, 0.6), kinds(0.4, 0.6, 0.4, 0.6)),
}


def benchmarks(*verdicts: str) -> Table:
    of = partial(simulate_benchmarks, documents=2_500, draws=0.01, shared=0.98, resamples=300)
    return {"order_by_task": {kind: map(of, BENCHMARKED[kind]) for kind in verdicts}}


test_a_planted_order_of_benchmarks_is_found = make_planted_test(benchmarks(SUPPORTED), depth=BENCHMARK_DEPTH)
test_the_null_and_the_opposite_on_benchmarks_are_found = make_planted_test(
    benchmarks(NULL, CONTRADICTED), depth=BENCHMARK_DEPTH, nightly=True
)
