"""The Painters' claims on planted sweeps."""

from collections.abc import Callable, Mapping

import pytest

from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.rows import PlanRecord
from page.claims.swept import DEPTH, WIDEST, Cost, by_strategy, swept
from page.claims.truths import CONTRADICTED, NULL, SUPPORTED, Table, Truth, claim_of, found, simulated

LITTLE = {"documents": 10, "shape": 0.5, "noise": 0.4}  # few documents, and a few of those carry most
MUCH = {"documents": 200, "noise": 0.03, "draws": 0.01}


def curved(power: float, scale: float = 1.0) -> Cost:
    return lambda record: scale * (record.affected / WIDEST) ** power * (record.strategy == "skip")


def looped(best: Callable[[int], float], gain_at_best: float, floor: float = 0.5) -> Cost:
    def cost(record: PlanRecord) -> float:
        name, _, number = record.strategy.partition("=")
        if name not in ("loops", "gain"):
            return 0.0
        least = floor if name == "loops" else gain_at_best
        return least * (1 + 0.05 * (float(number) - best(record.affected)) ** 2)

    return cost


def three_passes(one: float, three: float, gain: float) -> Cost:
    harm = {"parallel": one, "looped_parallel": three, "gain=3": gain}
    return by_strategy(**harm)


def ranked(*order: str, step: float = 0.3) -> Cost:
    return by_strategy(**{name: 1 + step * index for index, name in enumerate(order)})


MILD = {"random": 0.5, "looped_parallel": 0.4}
FIVE = PAINTERS_RANKING[:-1]
PLANTED: Mapping[str, Mapping[str, tuple[Cost, ...]]] = {
    "all_needed": {SUPPORTED: (curved(2.5),), NULL: (curved(1.0),), CONTRADICTED: (curved(0.4), curved(0.0))},
    "same_function": {
        SUPPORTED: (by_strategy(skip=1, middle_repeat=1.3),),
        NULL: (by_strategy(skip=1, middle_repeat=1),),
        CONTRADICTED: (by_strategy(skip=1, middle_repeat=0.7), by_strategy(skip=1, middle_repeat=0.002)),
    },
    "any_order": {
        SUPPORTED: (by_strategy(skip=1, reverse=0.7, random=0.6),),
        NULL: (by_strategy(skip=1, reverse=1, random=0.6),),
        CONTRADICTED: (by_strategy(skip=1, reverse=1.4, random=0.6), by_strategy(skip=1, random=0.3)),
    },
    "parallel": {
        SUPPORTED: (by_strategy(skip=1, parallel=0.7, reverse=0.5),),
        NULL: (by_strategy(skip=1, parallel=1, reverse=0.5),),
        CONTRADICTED: (by_strategy(skip=1, parallel=1.4, reverse=0.5), by_strategy(skip=1, parallel=0.5, reverse=0.7)),
    },
    "looping": {
        SUPPORTED: (three_passes(1, 0.6, 0.8),),
        NULL: (three_passes(1, 0.6, 0.6), three_passes(1, 0.6, 0.4)),
        CONTRADICTED: (three_passes(1, 1, 0.6), three_passes(1, 1.3, 1)),
    },
    "loop_count": {
        SUPPORTED: (looped(lambda affected: affected - 1, 0.8),),
        NULL: (looped(lambda affected: affected - 1, 0.5),),
        CONTRADICTED: (looped(lambda affected: 3, 0.8), looped(lambda affected: 8 - affected, 0.8)),
    },
    "ranking": {
        SUPPORTED: (ranked(*PAINTERS_RANKING), ranked(*PAINTERS_RANKING[::-1][-2:], *PAINTERS_RANKING[2:])),
        NULL: (ranked(*PAINTERS_RANKING, step=0.0),),
        CONTRADICTED: (ranked(*PAINTERS_RANKING[::-1]), ranked("middle_repeat", *FIVE)),
    },
    "shallowest": {
        SUPPORTED: (by_strategy(**dict.fromkeys(PAINTERS_RANKING, 1.0) | MILD),),
        NULL: (ranked(*PAINTERS_RANKING, step=0.0),),
        CONTRADICTED: (by_strategy(**dict.fromkeys(PAINTERS_RANKING, 1.0) | {"random": 1.5}),),
    },
}
FAMILIES = {"looping": ("painters", "gain_sweep"), "loop_count": ("looped", "gain_sweep")}
"""Plans of claims that do not read the paper's."""


def run(rule: str, cost: Cost, families: tuple[str, ...] | None = None, **settings: float) -> Truth:
    return swept([rule], cost, families=families or FAMILIES.get(rule, ("painters",)), **settings)  # type: ignore[arg-type]


def worlds(*settings: Mapping[str, float]) -> Table:
    return {
        rule: {kind: [run(rule, cost, **each) for cost in costs for each in settings] for kind, costs in kinds.items()}
        for rule, kinds in PLANTED.items()
    }


test_what_was_planted_is_found = found(worlds(MUCH), depth=DEPTH)
test_what_was_planted_is_told = simulated(worlds(MUCH), depth=DEPTH, nightly=True)
test_no_verdict_is_wrong_in_more_than_five_of_a_hundred_runs = simulated(
    worlds({}, LITTLE), depth=DEPTH, least=0.0, nightly=True
)


@pytest.mark.parametrize("rule", PLANTED)
def test_rows_without_intervals_decide_nothing(rule: str) -> None:
    claim = claim_of(rule, run(rule, PLANTED[rule][SUPPORTED][0], documents=7)(0), DEPTH)
    assert claim.verdict == "inconclusive"
    assert "fewer than 8 documents" in claim.answer or "loops" in claim.answer


@pytest.mark.parametrize("rule", FAMILIES)
def test_without_gains_loops_are_told_without_their_null(rule: str) -> None:
    claim = claim_of(rule, run(rule, PLANTED[rule][NULL][0], FAMILIES[rule][:1], **MUCH)(0), DEPTH)
    assert claim.verdict == SUPPORTED
    assert "the null needs --families painters,looped,gain_sweep" in claim.answer


def test_a_best_count_at_the_end_contradicts_nothing() -> None:
    claim = claim_of("loop_count", run("loop_count", looped(lambda affected: 12, 0.8), ("looped",), **MUCH)(0), DEPTH)
    assert claim.verdict == "inconclusive"
    assert claim.answer.startswith("More loops than were run may be best.")
