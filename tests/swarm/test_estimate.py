"""What missing layers cost: measured sets as measured, others within their intervals, beyond that unknown."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr, t

from layerwise.errors import RunError, SwarmError
from layerwise.plan import Plan
from layerwise.plan.families import leave_one_out, random_subsets
from layerwise.results import Loss, Manifest, PlanRecord, Run, Score
from layerwise.swarm.answer import COMPLETE, UNKNOWN
from layerwise.swarm.estimate import LossEstimate, estimate_of_run, missing_layers
from layerwise.swarm.set_regression import fit, kernel
from tier import by_tier

DEPTH = 12
Missing = frozenset[int]


class Truth:
    """Costs that saturate, of single effects, pairs, and something of its own for every set."""

    def __init__(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.single = chance.lognormal(-1.5, 1.0, DEPTH)
        self.pair = np.triu(chance.normal(0, 0.15, (DEPTH, DEPTH)), 1)
        self.chance = chance

    def cost(self, missing: Missing) -> float:
        row: NDArray[np.float64] = np.zeros(DEPTH)
        row[list(missing)] = 1
        added = self.single @ row + row @ self.pair @ row
        return float(6 * np.tanh(added * np.exp(self.chance.normal(0, 0.1)) / 6))


def drawn(seed: int, count: int) -> list[Missing]:
    return [frozenset(range(DEPTH)) - member.plan.layers() for member in random_subsets(DEPTH, count, seed)]


def estimate(truth: Truth, sets: list[Missing]) -> LossEstimate:
    costs = {missing: truth.cost(missing) for missing in sets}
    return LossEstimate.of({missing: (cost, cost - 0.1, cost + 0.1) for missing, cost in costs.items()}, DEPTH)


@pytest.mark.simulated
def test_nine_of_ten_unseen_sets_cost_what_their_interval_says() -> None:
    covered, sizes = [], []
    for seed in range(by_tier(fast=1, nightly=12)):
        truth, known = Truth(seed), drawn(0, 480)
        fitted = estimate(truth, known)
        unseen = [missing for missing in drawn(1, 800) if missing not in set(known)]
        assert len(unseen) >= 200
        expected, costs = [fitted.expected(missing) for missing in unseen], [truth.cost(missing) for missing in unseen]
        assert {each.basis for each in expected} == {"fitted"}
        assert spearmanr([each.nats for each in expected], costs)[0] >= 0.9
        covered.append([each.low <= cost <= each.high for each, cost in zip(expected, costs, strict=True)])
        sizes.append([len(missing) for missing in unseen])
        assert 0.82 <= np.mean(covered[-1]) <= 0.97
    assert 0.85 <= np.mean(np.concatenate(covered)) <= 0.95
    flat, size = np.concatenate(covered), np.concatenate(sizes)
    assert all(0.8 <= flat[size == each].mean() <= 1.0 for each in range(3, 7)), "at every number of missing layers"


def test_what_was_measured_is_given_as_it_was() -> None:
    truth = Truth(0)
    fitted = estimate(truth, drawn(0, 100))
    assert fitted.expected(frozenset()) == COMPLETE
    for missing, (value, low, high) in fitted.measured.items():
        expected = fitted.expected(missing)
        assert (expected.nats, expected.low, expected.high, expected.basis) == (value, low, high, "measured")
    alone = next(missing for missing in fitted.measured if len(missing) == 1)
    assert fitted.single(min(alone)) == fitted.measured[alone][0]


def test_beyond_what_was_measured_nothing_is_known() -> None:
    truth = Truth(0)
    fitted = estimate(truth, [missing for missing in drawn(0, 320) if 11 not in missing and len(missing) <= 4])
    assert fitted.largest == 4
    assert fitted.expected(frozenset(range(5))) == UNKNOWN
    assert fitted.expected(frozenset({0, 11})) == UNKNOWN
    assert fitted.single(11) is None
    assert estimate(truth, drawn(0, 320)[:20]).expected(frozenset({1, 5, 7})) == UNKNOWN
    assert LossEstimate.of({}, DEPTH).expected(frozenset({1})) == UNKNOWN


def test_runs_of_layers_alone_say_nothing_of_scattered_ones() -> None:
    runs = [frozenset(range(start, stop)) for start, stop in combinations(range(DEPTH + 1), 2) if stop - start < DEPTH]
    fitted = estimate(Truth(0), runs)
    assert fitted.expected(frozenset({0, 2, 4})) == UNKNOWN
    assert fitted.expected(frozenset({0, 1, 2})).basis == "measured"


def test_additive_costs_are_found_exactly_up_to_what_is_shrunk() -> None:
    sets = drawn(0, 320)
    costs = [0.1 * len(missing) + 0.2 * (3 in missing) for missing in sets]
    value, low, high = fit(sets, costs, DEPTH).interval(frozenset({3, 5, 8, 11}))
    assert value == pytest.approx(0.6, abs=0.02)
    assert low <= value <= high
    assert high - low < 0.1


def test_nothing_missing_costs_nothing_by_construction() -> None:
    none = np.zeros((1, DEPTH))
    assert kernel(none, np.eye(DEPTH)).tolist() == np.zeros((1, DEPTH)).tolist()


@pytest.mark.parametrize(
    ("plan", "missing"),
    [
        ("0-5", set()),
        ("0-2 5", {3, 4}),
        ("5", {0, 1, 2, 3, 4}),
        ("0-2 4 3 5", None),
        ("0-2 2 3", None),
        ("0 (1|2) 3", None),
        ("(0):gain=0.5 1", None),
        ("0 1.attn 2", None),
        ("0 a:1 2", None),
        ("[0 1] 2", {3, 4, 5}),
        ("0*2 1", None),
    ],
)
def test_which_plans_are_surviving_sets(plan: str, missing: set[int] | None) -> None:
    assert missing_layers(Plan.parse(plan), 6) == missing


MANIFEST = Manifest("demo", None, "w", "float32", "cpu", "lib", "c", 2, 9, 8, ("random_subsets",), ("t",), 0)
WHOLE = PlanRecord(f"0-{DEPTH - 1}", "identity", "identity", 0, None, 12, 12, 12, 12)


def stored(folder: Path, *, scores: bool = True) -> Path:
    """The run of a sweep with two tasks, of which only the pooled one is on the scale of the truth."""
    members = [*leave_one_out(DEPTH), *random_subsets(DEPTH, 200)]
    truth = Truth(0)
    costs = {str(member.plan): truth.cost(frozenset(range(DEPTH)) - member.plan.layers()) for member in members}
    with Run.create(folder, MANIFEST) as run:
        run.store.add_plans([WHOLE])
        if scores:
            rows = [
                Score(
                    "effect",
                    "delta_nll",
                    cost * by,
                    cost * by - 0.2,
                    cost * by + 0.4,
                    task=task,
                    plan=plan,
                    documents=30,
                )
                for plan, cost in {**costs, "1 0 2-11": 9.0}.items()
                for task, by in (("all", 1.0), ("copy", 2.0))
            ]
            run.store.replace_scores("effect", [*rows, Score("effect", "nll", 1.0, plan="0-11")])
    return folder


def test_a_run_of_a_sweep_is_read(tmp_path: Path) -> None:
    fitted = estimate_of_run(stored(tmp_path / "run"))
    assert fitted.depth == DEPTH
    assert fitted.regression is not None
    assert len(fitted.measured) == len({*leave_one_out(DEPTH)} | {*random_subsets(DEPTH, 200)}) - _shared()
    expected = fitted.expected(frozenset({0}))
    assert expected.basis == "measured"
    assert expected.nats is not None
    assert expected.high is not None
    # Student's quantiles at 29 degrees of freedom: 1.699 for 90 % and 2.045 for 95 %.
    assert expected.high - expected.nats == pytest.approx(0.4 * 1.699 / 2.045, rel=1e-3)
    assert fitted.expected(frozenset({0, 3, 4, 9, 10})).basis in {"fitted", "measured"}


@pytest.mark.parametrize(
    ("documents", "windows", "freedom"), [(30, 120, 29), (8, 80, 7), (7, 35, 34), (2, 40, 39), (2, 0, 7)]
)
def test_ninety_percent_is_made_of_95_by_what_was_resampled(
    tmp_path: Path, documents: int, windows: int, freedom: int
) -> None:
    """Fewer than 8 documents are resampled by windows; a run whose windows are gone had 8 at least."""
    with Run.create(tmp_path / "run", MANIFEST) as run:
        run.store.add_plans([WHOLE])
        run.store.add_losses(
            Loss(WHOLE.plan, "text", str(window % documents), window // documents, 1.0, 1, 0)
            for window in range(windows)
        )
        row = Score("effect", "delta_nll", 1.0, 0.8, 1.4, task="text", plan="1-11", documents=documents)
        run.store.replace_scores("effect", [row])
    expected = estimate_of_run(tmp_path / "run").expected(frozenset({0}))
    share = t.ppf(0.95, freedom) / t.ppf(0.975, freedom)
    assert (expected.low, expected.high) == pytest.approx((1.0 - 0.2 * share, 1.0 + 0.4 * share))


def _shared() -> int:
    """How many plans both families hold."""
    return len({each.plan for each in leave_one_out(DEPTH)} & {each.plan for each in random_subsets(DEPTH, 200)})


def test_a_run_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SwarmError, match="--families leave_one_out,random_subsets"):
        estimate_of_run(stored(tmp_path / "begun", scores=False))
    with pytest.raises(RunError, match="is not a run"):
        estimate_of_run(tmp_path / "nothing")
    with pytest.raises(SwarmError, match="layer 12 was missing in a measured set, but the model has 12 layers"):
        LossEstimate.of({frozenset({12}): (1.0, None, None)}, DEPTH)
