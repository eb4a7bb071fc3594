"""The Painters' benchmark claims on planted scores."""

from collections.abc import Mapping
from functools import partial

from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.rows import PlanRecord
from page.claims.benchmarked import DEPTH, Planted, benchmarked, straight
from page.claims.truths import CONTRADICTED, NULL, SUPPORTED, Table, found

MUCH = 2_500
REASONING = ("arc", "gsm8k")


def falling(**steepness: float) -> Planted:
    def score(record: PlanRecord, name: str) -> float:
        return straight(record, next((each for key, each in steepness.items() if name.startswith(key)), 0.5))

    return score


def by_strategy(**steepness: float) -> Planted:
    return lambda record, name: straight(record, steepness.get(record.strategy, 0.5))


def kinds(order: float, absence: float, reasoning_order: float, reasoning_absence: float) -> Planted:
    def score(record: PlanRecord, name: str) -> float:
        ours = name.startswith(REASONING)
        moved, absent = (reasoning_order, reasoning_absence) if ours else (order, absence)
        return straight(record, absent if record.strategy == "skip" else moved)

    return score


PLANTED: Mapping[str, Mapping[str, tuple[Planted, ...]]] = {
    "fragile": {
        SUPPORTED: (falling(gsm8k=0.9),),
        NULL: (falling(),),
        CONTRADICTED: (falling(hellaswag=0.9), falling(gsm8k=0.25)),
    },
    "order_by_benchmark": {
        SUPPORTED: (kinds(0.3, 0.6, 0.6, 0.6),),
        NULL: (kinds(0.3, 0.4, 0.52, 0.69),),
        CONTRADICTED: (kinds(0.6, 0.6, 0.3, 0.6), kinds(0.4, 0.6, 0.4, 0.6)),
    },
    "repeat_at_chance": {
        SUPPORTED: (by_strategy(middle_repeat=9.0),),
        NULL: (by_strategy(middle_repeat=9.0, skip=9.0),),
        CONTRADICTED: (by_strategy(middle_repeat=0.6),),
    },
    "shallowest_on_benchmarks": {
        SUPPORTED: (by_strategy(random=0.3, looped_parallel=0.25),),
        NULL: (by_strategy(**dict.fromkeys(PAINTERS_RANKING, 0.95)),),
        CONTRADICTED: (by_strategy(random=0.8, looped_parallel=0.25),),
    },
}


def clear(*kinds: str) -> Table:
    of = partial(benchmarked, documents=MUCH, draws=0.01, shared=0.98, resamples=300)
    return {rule: {kind: map(of, worlds[kind]) for kind in kinds} for rule, worlds in PLANTED.items()}


test_what_was_planted_is_found = found(clear(SUPPORTED), depth=DEPTH)
test_so_is_the_null_and_its_opposite = found(clear(NULL, CONTRADICTED), depth=DEPTH, nightly=True)
