"""What missing layers cost: measured sets as measured, and any other set unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import t

from layerwise.errors import RunError, SwarmError
from layerwise.plan import Plan
from layerwise.plan.families import leave_one_out, random_subsets
from layerwise.results import Loss, Manifest, PlanRecord, Run, Score
from layerwise.swarm.answer import COMPLETE, UNKNOWN, Expected
from layerwise.swarm.estimate import LossEstimate, estimate_of_run, missing_layers

DEPTH = 12


def test_what_was_measured_is_given_as_it_was_and_anything_else_is_unknown() -> None:
    estimate = LossEstimate(DEPTH, {frozenset({3}): (0.5, 0.4, 0.6), frozenset({3, 4}): (1.5, None, None)})
    assert estimate.expected(frozenset()) == COMPLETE
    assert estimate.expected(frozenset({3})) == Expected(0.5, 0.4, 0.6, "measured")
    assert estimate.expected(frozenset({3, 4})) == Expected(1.5, None, None, "measured")
    assert estimate.expected(frozenset({3, 5})) == estimate.expected(frozenset({4})) == UNKNOWN
    assert (estimate.single(3), estimate.single(4)) == (0.5, None)


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


def cost(number: int) -> float:
    """The planted cost of the plan with this number."""
    return 0.1 * (number + 1)


def stored(folder: Path, *, scores: bool = True) -> Path:
    """The run of a sweep with two tasks, of which only the pooled one is on the scale of the planted costs."""
    members = [*leave_one_out(DEPTH), *random_subsets(DEPTH, 20)]
    costs = {str(member.plan): cost(number) for number, member in enumerate(members)}
    with Run.create(folder, MANIFEST) as run:
        run.store.add_plans([WHOLE])
        if scores:
            rows = [
                Score(
                    "effect",
                    "delta_nll",
                    nats * by,
                    nats * by - 0.2,
                    nats * by + 0.4,
                    task=task,
                    plan=plan,
                    documents=30,
                )
                for plan, nats in {**costs, "1 0 2-11": 9.0}.items()
                for task, by in (("all", 1.0), ("copy", 2.0))
            ]
            run.store.replace_scores("effect", [*rows, Score("effect", "nll", 1.0, plan="0-11")])
    return folder


def test_a_run_of_a_sweep_is_read(tmp_path: Path) -> None:
    estimate = estimate_of_run(stored(tmp_path / "run"))
    assert estimate.depth == DEPTH
    for number, member in [*enumerate([*leave_one_out(DEPTH), *random_subsets(DEPTH, 20)])][DEPTH:]:
        expected = estimate.expected(frozenset(range(DEPTH)) - member.plan.layers())
        assert (expected.nats, expected.basis) == (pytest.approx(cost(number)), "measured")
        # Student's quantiles at 29 degrees of freedom: 1.699 for 90 % and 2.045 for 95 %.
        assert expected.high == pytest.approx(cost(number) + 0.4 * 1.699 / 2.045, rel=1e-3)
    assert estimate.of_plan("1 0 2-11").nats == 9.0
    assert estimate.of_plan("2 0 1 3-11") == UNKNOWN


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


def test_a_run_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SwarmError, match="--families leave_one_out,every_window"):
        estimate_of_run(stored(tmp_path / "begun", scores=False))
    with pytest.raises(RunError, match="is not a run"):
        estimate_of_run(tmp_path / "nothing")
    with pytest.raises(SwarmError, match="layer 12 was missing in a measured set, but the model has 12 layers"):
        LossEstimate(DEPTH, {frozenset({12}): (1.0, None, None)})
