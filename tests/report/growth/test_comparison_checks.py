"""What must hold for a comparison to be a fair one is said, and what does not hold is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.report.growth.comparison_checks import budget_shares, fairness, step_errors
from layerwise.report.growth.lookup import GrowthScores, PhaseSteps
from layerwise.results.rows import Score
from report import grown
from report.grown import row

LEARNED = "Did uniform training learn what needs layers?"
TUNED, COSTS = "Was the learning rate tuned?", "Do the costs add up?"


def told(scores: list[Score]) -> dict[str, str]:
    return {finding.question: finding.text for finding in fairness(GrowthScores.of(scores))}


@pytest.fixture(scope="module")
def scores() -> list[Score]:
    return grown.scores(12)


@pytest.mark.parametrize(
    ("half", "null", "words"),
    [
        (
            0.1,
            4.2,
            "Yes. It ends at 4.00 [3.90, 4.10] nats per token, a table of token pairs",
        ),
        (0.3, 4.2, "Not beyond its seeds. It ends at 4.00"),
        (0.1, 3.8, "No. It ends at 4.00"),
    ],
)
def test_a_baseline_has_to_beat_a_table_of_pairs(half: float, null: float, words: str) -> None:
    rows = [row("held_out", "uniform", "test", "nll", 4.0, half), row("null", "token pairs", "test", "nll", null, 0.02)]
    text = told(rows)[LEARNED]
    assert text.startswith(words)
    assert ("letting layers rest" in text or "lets them rest" in text) == (not words.startswith("Yes"))
    assert LEARNED not in told(rows[:1])


def test_rates_are_told_and_the_end_of_a_sweep_is_named(scores: list[Score]) -> None:
    text = told(scores)[TUNED]
    assert "uniform took 0.003 of 0.001, 0.003 and 0.01 (" in text
    assert "importance took 0.01 of 0.001, 0.003 and 0.01, the end of those tried: a better one may lie beyond" in text
    assert text.count("lie beyond") == 1
    assert "One seed chose" in text


def test_what_came_of_the_chosen_rate_is_told_beside_the_sweep(scores: list[Score]) -> None:
    rows = [row("rates", "a", "0.1", *each) for each in (("nll", 3.68), ("chosen", 1.0))]
    rows.append(row("held_out", "a/0", "test", "nll", 4.0))
    after = [row("training", f"a/{seed}", "step 9", "validation_loss", loss) for seed, loss in ((0, 3.97), (1, 3.81))]
    assert "(validation loss 3.68 in the sweep, 3.81 to 3.97 afterwards)" in told([*rows, *after])[TUNED]
    assert "afterwards" not in told(rows)[TUNED]
    wide = [replace(score, low=3.5, high=3.9) if score.metric == "nll" else score for score in rows]
    assert "Several seeds chose." in told(wide)[TUNED]


def test_a_rate_that_was_chosen_against_its_losses_is_named() -> None:
    rows = [row("rates", "a", rate, "nll", loss) for rate, loss in (("0.1", 5.0), ("0.2", 4.5), ("0.3", 4.0))]
    rows.append(row("rates", "a", "0.2", "chosen", 1.0))
    assert told(rows)[TUNED].startswith("a took 0.2 of 0.1, 0.2 and 0.3, which had not the least loss.")
    assert "none is marked as chosen" in told(rows[:-1])[TUNED]


def test_one_rate_is_no_sweep_with_an_end() -> None:
    rows = [row("rates", "a", "0.1", "nll", 5.0), row("rates", "a", "0.1", "chosen", 1.0)]
    assert told(rows)[TUNED].startswith("a took 0.1 of 0.1.")


def test_budgets_are_held_against_uniform_with_the_same_seed(scores: list[Score]) -> None:
    shares = budget_shares(GrowthScores.of(scores))
    assert set(shares) == {f"{arm}/{seed}" for arm in grown.EFFECTS for seed in grown.SEEDS}
    assert all(abs(share - 1.0) < 0.01 for share in shares.values())
    assert "The FLOPs of every arm are within 0." in told(scores)[COSTS]


def test_an_arm_that_spent_more_is_named(scores: list[Score]) -> None:
    dear = [
        replace(score, value=1.031 * score.value) if (score.subject, score.metric) == ("ramp/1", "flops") else score
        for score in scores
    ]
    text = told(dear)[COSTS]
    assert text.startswith("The FLOPs of ramp are up to 3.")
    assert "beyond the 1 % allowed: not all arms have had one budget." in text
    assert "every arm" not in text


def test_an_arm_that_was_given_another_budget_is_not_held_to_this_one(scores: list[Score]) -> None:
    others = [score for score in scores if (score.measure, score.task) != ("growth", "flops")]
    assert "FLOPs" not in told(others)[COSTS]


def test_the_worst_phase_is_told_by_its_sign_and_its_name() -> None:
    rows = [
        row("accounting", "a", task, metric, share)
        for task, of in {"0-5 early": (0.5, 0.45), "5-9 late": (0.8, 0.96)}.items()
        for metric, share in zip(("predicted", "measured"), of, strict=True)
    ]
    errors = step_errors(GrowthScores.of(rows))
    assert errors["a", PhaseSteps(0, 5, "early")] == pytest.approx(-0.1)
    text = told(rows)[COSTS]
    assert "off its prediction by +20.0 % at most (a, late), 1 of 2 phases beyond 15 %." in text
    quick = [replace(score, value=0.92) if score.value == 0.96 else score for score in rows]
    assert "by +15.0 % at most (a, late), all 2 phases within 15 %." in told(quick)[COSTS]


def test_without_rows_nothing_is_said() -> None:
    assert told([row("held_out", "a", "test", "nll", 4.0)]) == {}
