"""A repeat counts only if held-out text confirms it, and a helpful one is named."""

from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

import numpy as np
import pytest

from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.results.rows import Loss
from layerwise.results.vocabulary import DELTA
from layerwise.search.confirm import losses_above
from layerwise.search.greedy import Space, exchanges, winners
from layerwise.search.rungs import mean_losses
from tier import TIER, first_fast

DEPTH, DOCUMENTS = 12, 64
WHOLE = Plan.identity(DEPTH)
HELPS = Plan.parse("0-5 (6 7):gain=0.5*2 8-11")
SPACE = Space(DEPTH, ("repeat", "damp"), lambda plan: float(len(plan.steps())), 2 * DEPTH, longest=DEPTH)
SEEDS = 100 if TIER == "nightly" else 40
NOISE = 0.05
"""Standard deviation over documents in nats."""


class Repeats:
    def __init__(self, costs: Callable[[Plan], float], seed: int, text: int, rungs: Sequence[int]) -> None:
        self.costs, self.seed, self.text = costs, seed, text
        self.parts = np.split(np.arange(DOCUMENTS), rungs)
        self.read: dict[int, set[Plan]] = {}

    @property
    def tokens(self) -> Sequence[Numbers]:
        return [np.full(part.size, 100.0) for part in self.parts]

    def losses(self, plan: Plan) -> Numbers:
        own = np.random.default_rng((self.seed, self.text, crc32(str(plan).encode())))
        noise = np.zeros(DOCUMENTS) if plan == WHOLE else NOISE * own.normal(size=DOCUMENTS)
        return np.asarray(100 * (3 + noise + (0.0 if plan == WHOLE else self.costs(plan))))

    def evaluate(self, plans: Sequence[Plan], rung: int, parent: Plan) -> Numbers:
        self.read.setdefault(rung, set()).update(plans)
        return np.array([self.losses(plan)[self.parts[rung]] for plan in plans])


def scanned(costs: Callable[[Plan], float], seed: int) -> tuple[Plan, Repeats]:
    searched = Repeats(costs, seed, 0, [8, 20])
    best = list(winners(exchanges(searched, SPACE, (WHOLE,), width=1), SPACE))
    change = next((plan for plan in best if plan != WHOLE), WHOLE)
    select = Repeats(costs, seed, 1, [])
    losses = mean_losses(select, [WHOLE, change], WHOLE)
    return min(losses, key=lambda plan: losses[plan]), searched


def gains(costs: Callable[[Plan], float], seed: int) -> Mapping[Plan, float]:
    chosen, _ = scanned(costs, seed)
    if chosen == WHOLE:
        return {}
    fresh = Repeats(costs, seed, 2, [])
    rows = [
        Loss(str(plan), "text", f"d{number}", 0, float(nll), 100, 0)
        for plan in (WHOLE, chosen)
        for number, nll in enumerate(fresh.losses(plan))
    ]
    (row,) = (row for row in losses_above(rows, WHOLE, "report", seed=seed) if row.metric == DELTA)
    return {chosen: row.high} if row.high < 0 else {}


@pytest.mark.parametrize(
    "costs", first_fast([lambda plan: 0.002 * (crc32(str(plan).encode()) % 100), lambda plan: 0.0])
)
def test_a_scan_in_which_nothing_helps_claims_a_repeat_in_at_most_5_of_100(costs: Callable[[Plan], float]) -> None:
    assert sum(bool(gains(costs, seed)) for seed in range(SEEDS)) <= 0.05 * SEEDS


def test_a_repeat_that_helps_is_named() -> None:
    def costs(plan: Plan) -> float:
        return -2.9 * NOISE / DOCUMENTS**0.5 if plan == HELPS else 0.1

    assert sum(HELPS in gains(costs, seed) for seed in range(SEEDS)) >= 0.75 * SEEDS


def test_the_trained_order_stays_and_most_repeats_read_little() -> None:
    _, searched = scanned(lambda plan: 0.1, 0)
    assert len(searched.read[0]) == 1 + 3 * DEPTH * (DEPTH + 1) // 2
    assert WHOLE in searched.read[2]
    assert len(searched.read[2]) <= 4
