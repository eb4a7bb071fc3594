"""What a training had cost by a step: laws of the reckoning, and the frontier of uniform."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.report.growth.lookup import GrowthScores
from layerwise.report.growth.training_cost import AXES, Outlay, frontier, loss_curves, outlay
from layerwise.results.rows import Score
from report import grown
from report.grown import row

pieces = st.lists(st.tuples(st.integers(1, 50), st.floats(0.0, 10.0)), min_size=1, max_size=6)


def following(lengths: list[tuple[int, float]]) -> Outlay:
    """Pieces that follow one another from step 0."""
    found, first = [], 0
    for steps, cost in lengths:
        found.append((first, first + steps, cost))
        first += steps
    return Outlay(tuple(found))


@given(pieces)
def test_the_cost_of_a_step_is_what_it_adds(lengths: list[tuple[int, float]]) -> None:
    spent = following(lengths)
    each = [cost for steps, cost in lengths for _ in range(steps)]
    for step in range(len(each) + 1):
        assert spent.by(step) == pytest.approx(sum(each[:step]))
    assert spent.by(len(each) + 5) == spent.by(len(each)), "nothing is spent after the end"


def arm(predicted: tuple[float, float], measured: tuple[float, float]) -> list[Score]:
    """A training of 100 steps in two phases, and uniform with 80 of 0.5 s."""
    tasks = ("0-40 early", "40-100 late")
    return [
        row("training", "uniform/0", "all", "steps", 80.0),
        row("training", "uniform/0", "all", "step_seconds", 0.5),
        row("training", "a/0", "all", "steps", 100.0),
        row("training", "a/0", "all", "tokens", 2000.0),
        row("training", "a/0", "all", "flops", 8e6),
        row("training", "a/0", "all", "seconds", 999.0),
        *(row("accounting", "a", task, "predicted", share) for task, share in zip(tasks, predicted, strict=True)),
        *(row("accounting", "a", task, "measured", share) for task, share in zip(tasks, measured, strict=True)),
        *(row("training", "a/0", f"step {step}", "validation_loss", 5.0 - step / 100) for step in (40, 100)),
    ]


def test_tokens_go_evenly_and_flops_and_seconds_by_phase() -> None:
    found = GrowthScores.of(arm((0.5, 1.0), (0.6, 1.0)))
    by = {terms: outlay(found, "a/0", "a", terms) for terms in AXES}
    assert by["tokens"].by(40) == pytest.approx(800.0)  # type: ignore[union-attr]
    assert by["flops"].by(100) == pytest.approx(8e6), "the whole is what was counted"  # type: ignore[union-attr]
    assert by["flops"].by(40) == pytest.approx(8e6 * 20 / 80)  # type: ignore[union-attr]
    assert by["seconds"].by(40) == pytest.approx(40 * 0.6 * 0.5), "steps alone"  # type: ignore[union-attr]
    assert by["seconds"].by(100) == pytest.approx((24 + 60) * 0.5)  # type: ignore[union-attr]


def test_a_phase_that_was_not_accounted_for_leaves_an_even_course() -> None:
    rows = [score for score in arm((0.5, 1.0), (0.6, 1.0)) if score.task != "0-40 early" or score.metric == "measured"]
    spent = outlay(GrowthScores.of(rows), "a/0", "a", "flops")
    assert spent is not None
    assert spent.by(40) == pytest.approx(8e6 * 0.4)


def test_a_training_without_an_end_has_no_course() -> None:
    rows = [score for score in arm((1.0, 1.0), (1.0, 1.0)) if (score.subject, score.metric) != ("a/0", "steps")]
    assert "a" not in loss_curves(GrowthScores.of(rows), "tokens")


def test_a_course_is_the_mean_of_its_seeds_within_their_range() -> None:
    found = GrowthScores.of(grown.scores(12))
    for terms in AXES:
        losses = loss_curves(found, terms)["published"]
        assert len(losses) == 24
        assert all(before < after for before, after in pairwise(losses))
        assert all(s.low is not None and s.high is not None and s.low < s.value < s.high for s in losses.values())


def test_equal_budgets_end_at_equal_flops_and_at_different_tokens() -> None:
    found = GrowthScores.of(grown.scores(12))
    flops = {arm: max(losses) for arm, losses in loss_curves(found, "flops").items()}
    tokens = {arm: max(losses) for arm, losses in loss_curves(found, "tokens").items()}
    assert max(flops.values()) == pytest.approx(min(flops.values()), rel=0.01)
    assert tokens["stacking"] > 1.1 * tokens["uniform"]


def test_the_frontier_joins_the_ends_of_uniform_and_needs_two_of_them() -> None:
    scores = grown.scores(12)
    found = GrowthScores.of(scores)
    ends = frontier(found, "tokens")
    assert len(ends) == 1 + len(grown.LENGTHS)
    assert list(ends) == sorted(ends)
    uniform = loss_curves(found, "tokens")["uniform"]
    assert ends[max(uniform)] == uniform[max(uniform)]
    alone = GrowthScores.of([score for score in scores if "@" not in score.subject])
    assert frontier(alone, "tokens") == {}


def test_a_phase_that_was_too_short_to_be_timed_is_taken_as_predicted() -> None:
    rows = [score for score in arm((0.5, 1.0), (0.6, 1.0)) if (score.task, score.metric) != ("0-40 early", "measured")]
    spent = outlay(GrowthScores.of(rows), "a/0", "a", "seconds")
    assert spent is not None
    assert spent.by(40) == pytest.approx(40 * 0.5 * 0.5)


def test_a_seed_with_more_steps_has_longer_phases_and_its_looks_are_paired_by_number() -> None:
    rows = arm((0.5, 1.0), (0.6, 1.0))
    longer = {"steps": 110.0, "tokens": 2200.0, "flops": 8e6}
    rows += [row("training", "a/1", "all", metric, value) for metric, value in longer.items()]
    rows += [row("training", "a/1", f"step {step}", "validation_loss", 6.0 - step / 110) for step in (44, 110)]
    found = GrowthScores.of(rows)
    spent = outlay(found, "a/1", "a", "flops")
    assert spent is not None
    assert spent.by(44) == pytest.approx(8e6 * 0.25)
    assert spent.by(110) == pytest.approx(8e6), "nothing is left over at the end"
    losses = loss_curves(found, "tokens")["a"]
    assert list(losses) == [pytest.approx(840.0), pytest.approx(2100.0)]
    assert losses[max(losses)].value == pytest.approx((4.0 + 5.0) / 2)


def test_the_pace_of_uniform_is_the_median_over_its_lengths() -> None:
    rows = arm((1.0, 1.0), (1.0, 1.0))
    for length, pace in (("0.8", 0.4), ("1.3", 9.0)):
        rows += [
            row("training", f"uniform@{length}/0", "all", "steps", 60.0),
            row("training", f"uniform@{length}/0", "all", "step_seconds", pace),
        ]
    spent = outlay(GrowthScores.of(rows), "a/0", "a", "seconds")
    assert spent is not None
    assert spent.by(10) == pytest.approx(10 * 0.5)
