"""The verdict says what was planted, and every claim in it falls when its numbers do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.report import ReportData, growth_lines
from layerwise.report.finding import Number
from layerwise.report.growth.findings import growth_findings, planned, verdict
from layerwise.report.growth.lookup import GrowthScores
from layerwise.results.rows import Score
from report import grown
from report.grown import difference, row

BETTER, WORSE, OPEN = (-0.05, 0.02), (0.05, 0.02), (0.005, 0.02)
MATTERS = "it matters which layers train when"
NOT_SHOWN = "the gain is not shown to come from which layers train when"
NOTHING = "nothing shows that it matters which layers train when"
WRONG_ROLES = "the roles that it gives the layers are not the right ones"


def study(
    uniform: tuple[float, float], arm: str = "importance", seeds: int = 3, *, swept: bool = True,
    **controls: tuple[float, float],
) -> GrowthScores:  # fmt: skip
    """A study of one arm against uniform, and against its controls, at equal FLOPs."""
    rates = [row("rates", arm, "0.1", metric, 1.0) for metric in ("nll", "chosen")] if swept else []
    losses = [
        row("held_out", f"{name}/{seed}", "test", "nll", 4.0) for name in (arm, "uniform") for seed in range(seeds)
    ]
    compared = [difference(f"{arm} - {control}", *numbers) for control, numbers in controls.items()]
    return GrowthScores.of([*losses, *rates, difference(f"{arm} - uniform", *uniform), *compared])


def told(found: GrowthScores) -> tuple[str, str]:
    finding = verdict(found)
    assert finding is not None
    return finding.text, finding.state


@pytest.fixture(scope="module")
def data() -> ReportData:
    return grown.run(12)


@pytest.fixture(scope="module")
def found(data: ReportData) -> GrowthScores:
    return GrowthScores.of(data.scores)


# ---- the verdict


def test_the_planted_truth_is_told(found: GrowthScores) -> None:
    text, state = told(found)
    assert state == "resolved"
    assert text.startswith(
        "At equal FLOPs, the importance schedule is better than uniform training: −0.0340 [−0.0470, −0.0210] nats per"
        " token over 3 seeds;"
    )
    assert "not distinguishable from itself with its layer roles permuted, −0.0020 [−0.0180, +0.0140]" in text
    assert "better than itself with its layer roles reversed, −0.0320 [−0.0490, −0.0150]" in text
    assert text.endswith(f"so {NOT_SHOWN}.")


def test_the_verdict_is_one_sentence_and_every_number_has_its_interval(found: GrowthScores) -> None:
    finding = verdict(found)
    assert finding is not None
    numbers = [piece for piece in finding.answer if isinstance(piece, Number)]
    assert len(numbers) == 3
    assert all(" [" in number for number in numbers)
    assert ". " not in finding.text


@pytest.mark.parametrize(
    ("numbers", "words", "state"),
    [
        (BETTER, "the importance schedule is better than uniform training: −0.0500", "resolved"),
        (WORSE, "the importance schedule is worse than uniform training: +0.0500", "resolved"),
        (
            OPEN,
            "no difference between the importance schedule and uniform training is resolvable above 0.0250 nats:",
            "unresolved",
        ),
    ],
)
def test_less_loss_is_better_more_is_worse_and_the_rest_is_not_resolvable(
    numbers: tuple[float, float], words: str, state: str
) -> None:
    text, found_state = told(study(numbers))
    assert words in text
    assert found_state == state


@pytest.mark.parametrize(
    ("uniform", "permuted", "reversed_", "conclusion"),
    [
        (BETTER, BETTER, BETTER, f"so {MATTERS}."),
        (BETTER, OPEN, BETTER, f"so {NOT_SHOWN}."),
        (BETTER, BETTER, OPEN, f"so {NOT_SHOWN}."),
        (BETTER, OPEN, OPEN, f"so {NOT_SHOWN}."),
        (BETTER, WORSE, BETTER, f"so {WRONG_ROLES}."),
        (OPEN, OPEN, OPEN, f"so {NOTHING}."),
        (WORSE, OPEN, BETTER, f"so {NOTHING}."),
        (OPEN, WORSE, WORSE, f"so {WRONG_ROLES}."),
        (OPEN, BETTER, BETTER, f"so {MATTERS}, though that does not make it better than uniform training."),
    ],
)
def test_layer_roles_matter_only_where_every_control_is_beaten(
    uniform: tuple[float, float], permuted: tuple[float, float], reversed_: tuple[float, float], conclusion: str
) -> None:
    text, _ = told(study(uniform, permuted=permuted, reversed=reversed_))
    assert text.endswith(conclusion)


def test_without_a_permuted_control_the_claim_is_no_whole_one() -> None:
    text, _ = told(study(BETTER, reversed=BETTER))
    assert text.endswith(f"so {MATTERS}, as far as reversed can decide without permuted.")


def test_a_contest_without_a_sweep_says_so() -> None:
    text, _ = told(study(BETTER, swept=False))
    assert text.endswith("; no learning rate was tuned, and another might turn this round.")
    assert "tuned" not in told(study(BETTER))[0]


def test_a_baseline_that_has_not_learned_takes_the_verdict_back(data: ReportData) -> None:
    high = [replace(score, value=4.0) if score.measure == "null" else score for score in data.scores]
    text, _ = told(GrowthScores.of(high))
    assert text.endswith(
        "uniform training is not shown to beat a table of token pairs, so this says nothing of layers."
    )
    assert "table of token pairs" not in told(GrowthScores.of(data.scores))[0]


def test_without_controls_nothing_is_said_of_roles() -> None:
    text, _ = told(study(BETTER))
    assert "nothing is known of layer roles" in text
    assert "train when" not in text


def test_random_freezing_is_a_control_too() -> None:
    text, _ = told(study(BETTER, permuted=BETTER, reversed=BETTER, random=OPEN))
    assert "not distinguishable from itself with its layers drawn at random" in text
    assert text.endswith(f"so {NOT_SHOWN}.")


def test_a_difference_without_an_interval_is_no_verdict() -> None:
    rows = [row("held_out", f"{arm}/0", "test", "nll", 4.0) for arm in ("importance", "uniform")] + [
        row("growth", f"importance - {other}", "flops", "difference", -0.5) for other in ("uniform", "permuted")
    ]
    text, state = told(GrowthScores.of(rows))
    assert state == "described"
    assert "differs from uniform training by −0.500 nats per token, without an interval, over 1 seed" in text
    assert "not distinguished, for want of an interval, from itself" in text
    assert "better" not in text


def test_the_corrected_p_decides_and_not_the_interval() -> None:
    numbers = replace(difference("importance - uniform", *BETTER), p=0.03, p_adjusted=0.2)
    found = GrowthScores.of([row("held_out", "importance/0", "test", "nll", 4.0), numbers])
    text, state = told(found)
    assert state == "unresolved"
    assert "is resolvable among so many arms (adjusted p 0.20): −0.0500 [" in text
    assert (
        "not resolvable among so many arms (adjusted p 0.20), "
        in answers(found)["Is importance better than uniform?"][0]
    )


def test_the_arm_with_controls_is_the_one_that_is_judged() -> None:
    rows = [difference("published - uniform", *BETTER), difference("importance - uniform", *WORSE)]
    assert planned(GrowthScores.of(rows)) == "importance"
    assert planned(GrowthScores.of([*rows, difference("published - permuted", *OPEN)])) == "published"
    assert planned(GrowthScores.of([difference("mine - uniform", *OPEN)])) == "mine"
    assert planned(GrowthScores.of([difference("permuted - uniform", *OPEN)])) is None
    assert planned(GrowthScores.of([row("held_out", "importance/0", "test", "nll", 4.0)])) is None


def test_terms_that_were_not_compared_leave_the_next_ones_to_decide() -> None:
    rows = [
        difference("importance - uniform", *BETTER, "seconds"),
        difference("importance - uniform", *WORSE, "tokens"),
    ]
    text, _ = told(GrowthScores.of(rows))
    assert text.startswith("At equal tokens, the importance schedule is worse")


# ---- what stands under it


def answers(found: GrowthScores) -> dict[str, tuple[str, str]]:
    return {finding.question: (finding.text, finding.state) for finding in growth_findings(found)}


def test_every_term_has_its_own_answer(found: GrowthScores) -> None:
    text, state = answers(found)["Is importance better than uniform?"]
    assert text == (
        "At equal FLOPs better, −0.0340 [−0.0470, −0.0210]; at equal tokens better, −0.0140 [−0.0270, −0.0010]; at"
        " equal seconds not resolvable above 0.0163 nats, −0.0080 [−0.0210, +0.0050]."
    )
    assert state == "resolved"


def test_terms_that_are_missing_are_named() -> None:
    text, _ = answers(study(BETTER))["Is importance better than uniform?"]
    assert text.endswith("not compared at equal tokens and at equal seconds.")


def test_the_other_schedules_stand_by_what_became_of_them(found: GrowthScores) -> None:
    text, _ = answers(found)["And the other schedules, at equal FLOPs?"]
    better, worse, rest = text.split("; ")
    assert better.startswith("Better: permuted ")
    assert "stacking" in better
    assert worse.startswith("worse: published ")
    assert rest.startswith("not resolvable: reversed ")
    assert "importance" not in text


def test_other_schedules_that_cannot_be_told_apart_are_not_resolved() -> None:
    rows = [difference("importance - uniform", *BETTER), difference("ramp - uniform", *OPEN)]
    rows += [row("held_out", f"{arm}/0", "test", "nll", 4.0) for arm in ("importance", "ramp")]
    _, state = answers(GrowthScores.of(rows))["And the other schedules, at equal FLOPs?"]
    assert state == "unresolved"


# ---- the terminal


def test_the_terminal_shows_the_arms_and_then_the_verdict(found: GrowthScores) -> None:
    lines = growth_lines(found)
    assert lines[0].split() == ["arm", "seeds", "held-out", "loss", "(nats)", "Δ", "at", "equal", "FLOPs"]
    assert [line.split()[0] for line in lines[1:9]] == list(found.arms)
    assert lines[9].startswith("- Does training where layers need it help? At equal FLOPs, ")
    assert all(len(line) <= 100 for line in lines[:9])


def test_one_schedule_alone_has_no_verdict(data: ReportData) -> None:
    kept: tuple[Score, ...] = tuple(
        score for score in data.scores if score.measure != "growth" and score.subject.split("/")[0] == "published"
    )
    lines = growth_lines(GrowthScores.of(kept))
    assert [line.split()[0] for line in lines[:2]] == ["arm", "published"]
    assert not any("Does training" in line for line in lines)


def test_a_run_of_another_kind_has_no_lines() -> None:
    assert growth_lines(GrowthScores.of([])) == ()
