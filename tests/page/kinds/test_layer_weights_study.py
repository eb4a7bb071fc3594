"""Layer weights: verdicts, costs and bounds; tests/golden freezes the texts."""

import pytest

from layerwise.page import ReportData
from layerwise.results.rows import Score
from layerwise.results.vocabulary import CONVERGENCE, DATA_SHARE, STUDY, TOKENS, TUNING_CONVERGENCE
from layerwise.studies.train_elc import study_page as page
from page import planted
from page.planted import of
from page.tables import table

PAIR = {"arm": "elc", "against": "ltg"}


@pytest.fixture(scope="module")
def data() -> ReportData:
    return planted.PRETRAINING


def compared(task: str, value: float, low: float, high: float, p: float, **more: float) -> Score:
    return Score(STUDY, "difference", value, low, high, p, task=task, condition=TOKENS, **PAIR, **more)


@pytest.mark.parametrize(("task", "word"), [("masked_lm", "Worse"), ("pairs", "Better")])
def test_more_loss_is_worse_and_more_accuracy_better(task: str, word: str) -> None:
    (finding,) = page.study_findings(of(compared(task, 0.1, 0.05, 0.2, 0.01)))
    assert finding.answer.startswith(f"{word}: ")


def test_what_falls_to_the_correction_is_said_to() -> None:
    (finding,) = page.study_findings(of(compared("pairs", 0.1, 0.01, 0.2, 0.04, p_adjusted=0.12)))
    assert finding.answer.startswith("Inconclusive among so many arms (corrected p 0.12): ")
    (bare,) = page.study_findings(of(Score(STUDY, "difference", 0.1, task="pairs", condition=TOKENS, **PAIR)))
    assert (bare.answer[:11], bare.verdict) == ("No interval", None)


def test_accuracies_are_in_points_and_costs_ratios() -> None:
    cost = Score(STUDY, "ratio", 1.07, 1.05, 1.09, task="time", **PAIR)
    worth, paid = page.study_findings(of(compared("pairs", 0.021, 0.01, 0.032, 0.01), cost))
    assert "+2.10 points [+1.00, +3.20]" in worth.answer
    assert (paid.answer, paid.verdict) == ("elc time ×1.07 [1.05, 1.09].", "supported")
    (unbounded,) = page.study_findings(of(Score(STUDY, "ratio", 1.07, task="memory of a step", **PAIR)))
    assert unbounded.verdict is None


def test_every_arm_has_a_line_and_those_of_fine_tuning_name_their_model(data: ReportData) -> None:
    assert [row[0] for row in page.every_arm(data).body] == ["ltg", "elc", "zero", "denseformer"]
    kept = {"task": "control main_verb", "arm": "elc-kept"}
    rows = (Score("masked_lm", "nll", 4.0, arm="elc-share-0.5"), Score("msgs-ours", "mcc", 0.5, 0.4, 0.6, **kept))
    ((arm, loss, pairs, control, ambiguous),) = page.every_arm(of(*rows)).body
    assert (arm, loss, pairs, control, ambiguous) == ("elc-kept", "as elc", "as elc", "0.500 [0.400, 0.600]", "–")
    assert len(table(page.STUDY_KIND, data, "differences")) == 21


def test_a_backbone_that_never_gets_there_makes_upper_bounds_and_both_make_none(data: ReportData) -> None:
    never = [
        Score(TUNING_CONVERGENCE, "censored", 0.33, task="rte", arm="ltg", condition=cost)
        for cost in ("steps", "seconds")
    ]
    known = of(*data.rows.where(measure=TUNING_CONVERGENCE), *never)
    text = next(page.tuning_findings(known)).answer
    assert "weights in both: steps at most ×0.80" in text
    assert "weights in pretraining only: steps not known, as neither always reaches it" in text
    table = {(row[0], row[1]): row[2:] for row in page.tuning_table(known, page.WEIGHTS_IN).body}
    assert table["rte", "elc"][3] == "≤ ×0.800 [0.700, 0.900]"
    assert table["rte", "elc-kept"][3] == "–"


@pytest.mark.parametrize(
    ("censored", "words"),
    [
        ((), "elc ×0.90 [0.80, 1.02] (not distinguishable, p 0.20)"),
        (("elc",), "elc at least ×0.90 (33 % of the trainings of elc never reach it)"),
        (("ltg",), "elc at most ×0.90 (33 % of the trainings of ltg never reach it)"),
        (("elc", "ltg"), "elc not known, as neither always reaches it"),
    ],
)
def test_a_loss_that_is_never_reached_is_a_bound(censored: tuple[str, ...], words: str) -> None:
    rows = [Score(CONVERGENCE, "ratio", 0.9, 0.8, 1.02, 0.2, p_adjusted=0.2, condition="steps", **PAIR)]
    rows += [Score(CONVERGENCE, "censored", 0.33, arm=arm, condition="steps") for arm in censored]
    (finding,) = page.convergence_findings(of(*rows, Score(CONVERGENCE, "loss", 4.2)))
    assert finding.answer == f"Times those of the backbone: {words}."
    assert (finding.verdict, finding.question[-33:]) == ("inconclusive", "(validation loss 4.200 or above)?")


def test_shares_are_read_by_their_intervals() -> None:
    grown = Score(DATA_SHARE, "by_halving", 0.1, -0.1, 0.3, 0.4, p_adjusted=0.4, task="pairs", **PAIR)
    (open_one,) = page.share_findings(of(grown))
    assert open_one.answer.endswith("each halving adds +10.0 points [−10.0, +30.0], inconclusive.")
