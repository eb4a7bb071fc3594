"""Growth: the verdict says what was planted, and every part of it falls when its numbers do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.experiments.summary import summary
from layerwise.report import ReportData, markdown, render
from layerwise.report.derived import growth, training_cost
from layerwise.report.derived.growth import Bounds, PhaseSteps, Training, Tuning
from layerwise.report.derived.growth_findings import budget_shares, growth_findings, step_errors, verdict
from layerwise.report.derived.training_cost import FRONTIER
from layerwise.report.kinds.growth import GROWTH_KIND
from layerwise.results.rows import Score
from report.grown import difference, held_out, rate, run, study, without

BETTER, WORSE, OPEN = (-0.05, 0.02), (0.05, 0.02), (0.005, 0.02)
MATTERS = "it matters which layers train when"
NOT_SHOWN = "the gain is not shown to come from which layers train when"
NOTHING = "nothing shows that it matters which layers train when"
WRONG_ROLES = "the roles that it gives the layers are not the right ones"
LEARNED, TUNED = "Did uniform training learn what needs layers?", "Was the learning rate tuned?"
COSTS, OTHERS = "Do the costs add up?", "And the other schedules, at equal FLOPs?"
Two = tuple[float, float]


def planned_study(uniform: Two, *, swept: bool = True, **controls: Two) -> ReportData:
    """A study of one arm against uniform, and against its controls, at equal FLOPs."""
    arm = "importance"
    rows = [held_out(name, seed=seed) for name in (arm, "uniform") for seed in range(3)]
    rows += [rate(arm, 0.1, metric) for metric in ("nll", "chosen")] if swept else []
    rows += [difference(arm, control, *numbers) for control, numbers in controls.items()]
    return study(*rows, difference(arm, "uniform", *uniform))


def concluded(data: ReportData) -> tuple[str, str]:
    finding = verdict(data)
    assert finding is not None
    return finding.text, finding.state


def answers(data: ReportData) -> dict[str, str]:
    return {finding.question: finding.text for finding in growth_findings(data)}


# ---- the verdict


@pytest.mark.parametrize(
    ("numbers", "words", "state"),
    [
        (BETTER, "the importance schedule is better than uniform training: −0.0500", "resolved"),
        (WORSE, "the importance schedule is worse than uniform training: +0.0500", "resolved"),
        (OPEN, "schedule and uniform training is resolvable above 0.0250 nats:", "unresolved"),
    ],
)
def test_less_loss_is_better_more_is_worse_and_the_rest_is_not_resolvable(numbers: Two, words: str, state: str) -> None:
    text, found = concluded(planned_study(numbers))
    assert words in text
    assert found == state


@pytest.mark.parametrize(
    ("uniform", "controls", "ending"),
    [
        (BETTER, {"permuted": BETTER, "reversed": BETTER}, f"so {MATTERS}."),
        (BETTER, {"permuted": OPEN, "reversed": BETTER}, f"so {NOT_SHOWN}."),
        (BETTER, {"permuted": BETTER, "reversed": OPEN}, f"so {NOT_SHOWN}."),
        (BETTER, {"permuted": BETTER, "reversed": BETTER, "random": OPEN}, f"so {NOT_SHOWN}."),
        (BETTER, {"permuted": WORSE, "reversed": BETTER}, f"so {WRONG_ROLES}."),
        (OPEN, {"permuted": OPEN, "reversed": OPEN}, f"so {NOTHING}."),
        (WORSE, {"permuted": OPEN, "reversed": BETTER}, f"so {NOTHING}."),
        (OPEN, {"permuted": WORSE, "reversed": WORSE}, f"so {WRONG_ROLES}."),
        (
            OPEN,
            {"permuted": BETTER, "reversed": BETTER},
            f"so {MATTERS}, though that does not make it better than uniform training.",
        ),
        (BETTER, {"reversed": BETTER}, f"so {MATTERS}, as far as reversed can decide without permuted."),
        (BETTER, {}, "no permuted or reversed control, so nothing is known of layer roles."),
    ],
)
def test_layer_roles_matter_only_where_every_control_is_beaten(
    uniform: Two, controls: dict[str, Two], ending: str
) -> None:
    assert concluded(planned_study(uniform, **controls))[0].endswith(ending)


def test_what_was_not_tuned_and_what_has_not_learned_is_part_of_the_verdict() -> None:
    untuned = concluded(planned_study(BETTER, swept=False))[0]
    assert untuned.endswith("; no learning rate was tuned, and another might turn this round.")
    assert "tuned" not in concluded(planned_study(BETTER))[0]
    low = [replace(row, value=4.0) if row.measure == "null" else row for row in run().scores]
    assert concluded(study(*low))[0].endswith("to beat a table of token pairs, so this says nothing of layers.")


def test_a_difference_without_an_interval_is_no_verdict() -> None:
    bare = [
        replace(difference("importance", other, -0.5, 0.1), low=None, high=None, p=None, p_adjusted=None)
        for other in ("uniform", "permuted")
    ]
    text, state = concluded(study(held_out("importance"), held_out("uniform"), *bare))
    assert state == "described"
    assert "differs from uniform training by −0.500 nats per token, without an interval, over 1 seed" in text
    assert "not distinguished, for want of an interval, from itself" in text
    assert "better" not in text


def test_the_corrected_p_decides_and_not_the_interval() -> None:
    data = study(replace(difference("importance", "uniform", *BETTER), p=0.03, p_adjusted=0.2))
    text, state = concluded(data)
    assert state == "unresolved"
    assert "is resolvable among so many arms (adjusted p 0.20): −0.0500 [" in text


@pytest.mark.parametrize(
    ("rows", "arm"),
    [
        ([difference("published", "uniform", *BETTER), difference("importance", "uniform", *WORSE)], "importance"),
        ([difference("importance", "uniform", *WORSE), difference("published", "permuted", *OPEN)], "published"),
        ([difference("mine", "uniform", *OPEN)], "mine"),
        ([difference("permuted", "uniform", *OPEN)], None),
        ([difference("published", "uniform", *OPEN, share=0.5)], None),
        ([held_out("importance")], None),
    ],
)
def test_the_arm_with_controls_is_the_one_that_is_judged(rows: list[Score], arm: str | None) -> None:
    assert growth.planned(study(*rows)) == arm


def test_terms_that_were_not_compared_leave_the_next_ones_to_decide() -> None:
    terms = {"seconds": BETTER, "tokens": WORSE}
    data = study(*(difference("importance", "uniform", *numbers, terms=each) for each, numbers in terms.items()))
    assert concluded(data)[0].startswith("At equal tokens, the importance schedule is worse")
    assert answers(data)["Is importance better than uniform?"].endswith("not compared at equal FLOPs.")


# ---- what stands under it


@pytest.mark.parametrize(
    ("half", "null", "words"),
    [
        (0.1, 4.2, "Yes. It ends at 4.00 [3.90, 4.10] nats per token, a table of token pairs"),
        (0.3, 4.2, "Not beyond its seeds. It ends at 4.00"),
        (0.1, 3.8, "No. It ends at 4.00"),
    ],
)
def test_a_baseline_has_to_beat_a_table_of_pairs(half: float, null: float, words: str) -> None:
    own = held_out("uniform", half=half, seed=None)
    pairs = Score("null", "nll", null, null - 0.02, null + 0.02, arm="token pairs")
    assert answers(study(own, pairs))[LEARNED].startswith(words)
    assert LEARNED not in answers(study(own))


def test_the_end_of_a_sweep_is_named_and_followed_by_further_rates() -> None:
    text = answers(run())[TUNED]
    assert "uniform took 0.003 of 0.001, 0.003 and 0.01 (" in text
    assert "importance took 0.01 of 0.001, 0.003 and 0.01, the end of those tried: a better one may lie beyond" in text
    assert text.count("lie beyond") == 1
    assert "One seed chose" in text
    (further,) = GROWTH_KIND.following(run())
    assert further == "Try further rates for importance: layerwise train growth-study --learning-rates 0.02"


def test_a_sweep_is_held_against_what_came_of_it() -> None:
    tried = [rate("a", 0.1, value=3.68), rate("a", 0.1, "chosen"), held_out("a")]
    after = [
        Score("training", "validation_loss", loss, arm="a", seed=seed, amount=9.0)
        for seed, loss in ((0, 3.97), (1, 3.81))
    ]
    assert "(validation loss 3.68 in the sweep, 3.81 to 3.97 afterwards)" in answers(study(*tried, *after))[TUNED]
    wide = [replace(row, low=3.5, high=3.9) if row.metric == "nll" else row for row in tried]
    assert "Several seeds chose." in answers(study(*wide))[TUNED]
    losses = [rate("a", each, value=loss) for each, loss in ((0.1, 5.0), (0.2, 4.5), (0.3, 4.0))]
    chosen = [*losses, rate("a", 0.2, "chosen"), rate("a", 0.3, "chosen", 0.0)]
    assert answers(study(*chosen))[TUNED].startswith("a took 0.2 of 0.1, 0.2 and 0.3, which had not the least loss.")
    assert "none is marked as chosen" in answers(study(*losses))[TUNED]


@pytest.mark.parametrize(("chosen", "at_end"), [(1.0, True), (2.0, False), (3.0, True)])
def test_an_end_is_the_least_or_the_greatest_of_several(chosen: float, at_end: bool) -> None:
    losses = {each: rate("a", each) for each in (1.0, 2.0, 3.0)}
    assert Tuning("a", losses, chosen).at_end == at_end
    assert not Tuning("a", {1.0: losses[1.0]}, 1.0).at_end


def test_budgets_are_held_against_uniform_with_the_same_seed() -> None:
    shares = budget_shares(run())
    assert len(shares) == 7 * 3
    assert all(abs(share - 1.0) < 0.01 for share in shares.values())
    assert "The FLOPs of every arm are within 0." in answers(run())[COSTS]
    dear = [
        replace(row, value=1.031 * row.value) if (row.arm, row.seed, row.metric) == ("ramp", 1, "flops") else row
        for row in run().scores
    ]
    text = answers(study(*dear))[COSTS]
    assert text.startswith("The FLOPs of ramp are up to 3.")
    assert "beyond the 1 % allowed: not all arms have had one budget." in text
    others = (row for row in run().scores if (row.measure, row.condition) != ("growth", "flops"))
    assert "FLOPs" not in answers(study(*others))[COSTS], "what had another budget is not held to this one"


@pytest.mark.parametrize(
    ("measured", "words"),
    [(0.96, "+20.0 % at most (a, late), 1 of 2 phases beyond 15"), (0.92, "+15.0 % at most (a, late), all 2 phases")],
)
def test_the_worst_phase_is_named_with_its_sign(measured: float, words: str) -> None:
    steps = {("early", 5.0): (0.5, 0.45), ("late", 9.0): (0.8, measured)}
    data = study(*(
        Score("accounting", metric, share, arm="a", condition=name, amount=end)
        for (name, end), of in steps.items()
        for metric, share in zip(("predicted", "measured"), of, strict=True)
    ))  # fmt: skip
    assert step_errors(data)["a", "early"] == pytest.approx(-0.1)
    assert words in answers(data)[COSTS]


def test_without_rows_nothing_is_concluded() -> None:
    assert answers(study(held_out("a"))) == {}


# ---- what was trained


def test_arms_stand_in_reading_order_and_lengths_apart_by_number() -> None:
    order = ("uniform", "published", "importance", "permuted", "reversed", "random", "stacking", "ramp")
    assert growth.arms(run()) == order
    assert [each.name for each in growth.lengths(run())] == ["uniform@0.75", "uniform@1.25", "uniform@1.5"]
    rows = [replace(held_out("uniform"), amount=share) for share in (1.5, 0.8, 12.0)]
    assert [each.share for each in growth.lengths(study(*rows))] == [0.8, 1.5, 12.0]
    assert growth.arms(study(rate("tried", 0.1), held_out("a"))) == ("a",), "a sweep makes no arm"


def test_phases_follow_one_another() -> None:
    phases = growth.phases(run(), "published")
    assert phases[:2] == (PhaseSteps(0, 182, "gastrulation"), PhaseSteps(182, 306, "neurulation"))
    assert growth.shares(run(), "stacking", growth.phases(run(), "stacking")[0])[5] == 0.0
    assert growth.shares(run(), "published", phases[0])["head"] == 1.0


def test_the_row_of_an_arm_comes_before_the_mean_of_its_seeds() -> None:
    seeds = [held_out("a", value, 0.1, seed) for seed, value in ((0, 4.0), (1, 5.0))]
    mean = growth.held_out(study(*seeds), Training("a"))
    whole = growth.held_out(study(*seeds, held_out("a", 4.4, 0.1, None)), Training("a"))
    assert mean is not None
    assert whole is not None
    assert (mean.value, mean.low, whole.value) == (4.5, None, 4.4), "a mean made here has no interval"


def test_losses_are_those_of_validation_and_else_of_training() -> None:
    noted = {("a", 5.0, "train"): 9.0, ("a", 10.0, "validation"): 4.0, ("b", 20.0, "train"): 8.0}
    data = study(*(
        Score("training", f"{kind}_loss", loss, arm=arm, seed=0, amount=step)
        for (arm, step, kind), loss in noted.items()
    ))  # fmt: skip
    assert [growth.losses(data, Training(arm), 0) for arm in "abc"] == [{10: 4.0}, {20: 8.0}, {}]


# ---- the headline


def saving(metric: str, value: float, half: float | None = None, terms: str = "flops") -> Score:
    bounds = () if half is None else (value - half, value + half)
    return Score("growth", metric, value, *bounds, arm="mine", against="uniform", condition=terms)


@pytest.mark.parametrize(
    ("rows", "bounds", "words"),
    [
        ([saving("saving", 0.25, 0.125)], Bounds(0.25, 0.125, 0.375), "25.0 [12.5, 37.5] %"),
        (
            [saving("saving_at_most", 0.2), saving("never", 2)],
            Bounds(0.2, -math.inf, 0.2),
            "20 % at most (not reached with 2 seeds)",
        ),
        (
            [saving("saving_at_least", 0.4)],
            Bounds(0.4, 0.4, 1.0),
            "40 % at least (reached before the first look with a seed)",
        ),
        ([saving("saving", 0.2)], None, "20 %"),
        ([], None, "–"),
    ],
)
def test_a_saving_has_two_bounds_or_the_one_that_is_known(rows: list[Score], bounds: Bounds | None, words: str) -> None:
    assert growth.saved(study(*rows), "mine", "flops") == bounds
    assert growth.saved_in_words(study(*rows), Training("mine"), "flops") == words


def test_the_headline_is_of_the_published_schedule_and_says_what_it_was_read_off() -> None:
    assert growth.headline_arm(run()) == "published"
    assert growth.headline_arm(study(*(row for row in run().scores if row.arm != "published"))) == "importance"
    assert "trainings of 7 lengths" in growth.how_read(run(), "published")
    assert "course of its loss" in growth.how_read(run(), "ramp")
    assert "its warm-up 0.1 of the steps, of 0.1, 0.2 and 0.4 tried, the end of them" in growth.nulls_in_words(run())
    assert "its warm-up not tuned" in growth.nulls_in_words(without("rates"))


# ---- the cost of a step


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.0, 10.0)), min_size=1, max_size=6))
def test_the_cost_of_a_step_is_what_it_adds(lengths: list[tuple[int, float]]) -> None:
    pieces, first = [], 0
    for steps, cost in lengths:
        pieces.append((float(first), float(first + steps), cost))
        first += steps
    each = [cost for steps, cost in lengths for _ in range(steps)]
    for step in range(len(each) + 1):
        assert training_cost.cost_by(tuple(pieces), step) == pytest.approx(sum(each[:step]))
    assert training_cost.cost_by(tuple(pieces), len(each) + 5) == training_cost.cost_by(tuple(pieces), len(each))


def training(arm: str, seed: int = 0, **figures: float) -> list[Score]:
    return [Score("training", metric, value, arm=arm, seed=seed) for metric, value in figures.items()]


def two_phases() -> list[Score]:
    """A training of 100 steps in two phases, and uniform with 80 of 0.5 s."""
    phases = {("early", 40.0): (0.5, 0.6), ("late", 100.0): (1.0, 1.0)}
    return [
        *training("uniform", steps=80.0, step_seconds=0.5),
        *training("a", steps=100.0, tokens=2000.0, flops=8e6, seconds=999.0),
        *(
            Score("accounting", metric, share, arm="a", condition=name, amount=end)
            for (name, end), of in phases.items()
            for metric, share in zip(("predicted", "measured"), of, strict=True)
        ),
    ]


def spent(rows: list[Score], terms: str, step: float, seed: int = 0) -> float:
    pieces = training_cost.outlay(study(*rows), Training("a"), seed, terms)
    assert pieces is not None
    return training_cost.cost_by(pieces, step)


def drop(rows: list[Score], **columns: Any) -> list[Score]:
    return [row for row in rows if any(getattr(row, name) != value for name, value in columns.items())]


def test_tokens_go_evenly_and_flops_and_seconds_by_phase() -> None:
    rows = two_phases()
    assert spent(rows, "tokens", 40) == pytest.approx(800.0)
    assert spent(rows, "flops", 100) == pytest.approx(8e6), "the whole is what was counted"
    assert spent(rows, "flops", 40) == pytest.approx(8e6 * 20 / 80)
    assert spent(rows, "seconds", 40) == pytest.approx(40 * 0.6 * 0.5), "steps alone"
    untimed = drop(rows, condition="early", metric="measured")
    assert spent(untimed, "seconds", 40) == pytest.approx(40 * 0.5 * 0.5), "as predicted"
    assert spent(drop(rows, condition="early", metric="predicted"), "flops", 40) == pytest.approx(8e6 * 0.4), "even"
    assert training_cost.outlay(study(*drop(rows, arm="a", metric="steps")), Training("a"), 0, "tokens") is None


def test_a_seed_with_more_steps_has_longer_phases_and_its_looks_are_paired_by_number() -> None:
    rows = [*two_phases(), *training("a", 1, steps=110.0, tokens=2200.0, flops=8e6)]
    looks = [(0, 40, 4.6), (0, 100, 4.0), (1, 44, 5.6), (1, 110, 5.0)]
    rows += [
        Score("training", "validation_loss", loss, arm="a", seed=seed, amount=float(step)) for seed, step, loss in looks
    ]
    assert spent(rows, "flops", 44, seed=1) == pytest.approx(8e6 * 0.25)
    assert spent(rows, "flops", 110, seed=1) == pytest.approx(8e6), "nothing is left over at the end"
    drawn = [row for row in training_cost.loss_by_cost(study(*rows)) if row.condition == "tokens"]
    assert [row.amount for row in drawn] == [pytest.approx(840.0), pytest.approx(2100.0)]
    assert (drawn[1].value, drawn[1].low, drawn[1].high) == (4.5, 4.0, 5.0)


def test_the_pace_of_uniform_is_the_median_over_its_lengths() -> None:
    rows = two_phases()
    for share, pace in ((0.8, 0.4), (1.3, 9.0)):
        own = training("uniform", steps=60.0, step_seconds=pace)
        rows += [replace(row, condition=f"{share:g} of the budget") for row in own]
        rows.append(replace(held_out("uniform"), amount=share))
    assert spent(rows, "seconds", 10) == pytest.approx(10 * 0.6 * 0.5)


def test_the_frontier_joins_the_ends_of_uniform_and_needs_two_of_them() -> None:
    drawn = [row for row in training_cost.loss_by_cost(run()) if row.condition == "tokens"]
    ends = [row for row in drawn if row.arm == FRONTIER]
    assert len(ends) == 4
    assert [row.amount for row in ends] == sorted(row.amount or 0.0 for row in ends)
    uniform = [row for row in drawn if row.arm == "uniform"][-1]
    assert (uniform.amount, uniform.value) in {(row.amount, row.value) for row in ends}
    alone = study(*(row for row in run().scores if row.measure != "training" or row.condition is None))
    assert not [row for row in training_cost.loss_by_cost(alone) if row.arm == FRONTIER]


# ---- the page


def test_a_schedule_alone_is_not_compared() -> None:
    data = without("growth")
    assert "No arms were compared in this run" in render(data)
    assert "layerwise train growth-study" in summary(data)
    assert "No arms were compared" in markdown(data)


def test_trainings_without_an_end_are_named() -> None:
    begun = Score("training", "train_loss", 4.0, arm="ramp", seed=7, amount=10.0)
    banner = GROWTH_KIND.unfinished(study(*run().scores, begun))
    assert banner is not None
    assert "1 training (ramp/7) is not complete" in banner
    assert GROWTH_KIND.unfinished(run()) is None
