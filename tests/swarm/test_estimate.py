"""Estimated cost of missing layers: known for measured sets only."""

from pathlib import Path

import pytest

from layerwise.errors import RunError, SwarmError
from layerwise.plan import Plan
from layerwise.plan.families import leave_one_out, random_subsets
from layerwise.results import Manifest, PlanRecord, Run, Score
from layerwise.swarm.answer import COMPLETE, UNKNOWN, Expected
from layerwise.swarm.estimate import LossEstimate, estimate_of_run

DEPTH = 12
MANIFEST = Manifest("demo", None, "w", "float32", "cpu", "lib", "c", 2, 9, 8, ("random_subsets",), ("t",), 0)
WHOLE = PlanRecord(f"0-{DEPTH - 1}", "identity", "identity", 0, None, 12, 12, 12, 12)


def test_what_was_measured_is_given_as_it_was_and_anything_else_is_unknown() -> None:
    alone, both, moved = (Expected(nats, nats - 0.1, nats + 0.1, "measured") for nats in (0.5, 1.5, 9.0))
    estimate = LossEstimate(DEPTH, {"0-2 4-11": alone, "0-2 5-11": both, "1 0 2-11": moved})
    assert estimate.expected(frozenset()) == COMPLETE
    assert estimate.expected({3}) == alone
    assert estimate.expected({3, 4}) == both
    assert [estimate.expected(each) for each in ({3, 5}, {4}, set(range(DEPTH)))] == [UNKNOWN] * 3
    assert estimate.of_plan("1 0 2-11") == moved
    assert estimate.of_plan("2 0 1 3-11") == UNKNOWN


def stored(folder: Path, *, scores: bool = True) -> dict[str, float]:
    members = [*leave_one_out(DEPTH), *random_subsets(DEPTH, 20)]
    costs = {str(member.plan): 0.1 * (number + 1) for number, member in enumerate(members)}
    with Run.create(folder, MANIFEST) as run:
        run.store.add_plans([WHOLE])
        if scores:
            rows = [
                Score("effect", "delta_nll", cost * by, cost * by - 0.2, cost * by + 0.4, task=task, plan=plan)
                for plan, cost in costs.items()
                for task, by in (("all", 1.0), ("copy", 2.0))
            ]
            run.store.replace_scores("effect", [*rows, Score("effect", "nll", 1.0, plan="0-11")])
    return costs


def test_a_run_of_a_sweep_is_read(tmp_path: Path) -> None:
    costs = stored(tmp_path / "run")
    estimate = estimate_of_run(tmp_path / "run")
    assert estimate.depth == DEPTH
    assert len(costs) > DEPTH
    for plan, cost in costs.items():
        missing = frozenset(range(DEPTH)) - Plan.parse(plan).layers()
        assert estimate.expected(missing) == Expected(cost, cost - 0.2, cost + 0.4, "measured")


def test_a_run_without_effects_is_refused(tmp_path: Path) -> None:
    stored(tmp_path / "begun", scores=False)
    with pytest.raises(SwarmError, match="--families leave_one_out,every_window"):
        estimate_of_run(tmp_path / "begun")
    with pytest.raises(RunError, match="is not a run"):
        estimate_of_run(tmp_path / "nothing")
