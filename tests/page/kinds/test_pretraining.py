"""Pre-trained models: variants, means, failures and costs."""

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from layerwise.page import ReportData, render
from layerwise.page.finding import Finding
from layerwise.page.sections.layer_weights import weight_table
from layerwise.page.trained import average_by_variant
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import ALPHA, MASKED_LM, TRAINING, UNIFORMITY
from layerwise.studies.train_elc import page
from page import planted
from page.planted import of
from page.tables import table


@pytest.fixture(scope="module")
def data() -> ReportData:
    return planted.PRETRAINING


def answers(findings: Iterable[Finding]) -> dict[str, tuple[str, str]]:
    return {each.question: (each.answer, each.verdict) for each in findings}


def loss(value: float, arm: str, seed: int | None = None, half: float | None = None) -> Score:
    bounds = () if half is None else (value - half, value + half)
    return Score(MASKED_LM, "nll", value, *bounds, arm=arm, seed=seed)


def test_an_arm_without_a_row_is_the_mean_of_its_seeds_and_fine_tunings_are_not_counted() -> None:
    model = {"task": "rte", "arm": "a"}
    rows = [
        Score("glue", "accuracy", value, value - 0.1, value + 0.1, seed=seed, tuning_seed=tuning_seed, **model)
        for value, seed, tuning_seed in ((0.6, 0, None), (0.8, 1, None), (0.0, 0, 1))
    ]
    (mean,) = average_by_variant(rows)
    assert (mean.value, mean.low, mean.seed) == (pytest.approx(0.7), None, None)
    (single,) = average_by_variant(rows[:1])
    assert (single.value, single.low) == (0.6, 0.5), "one seed keeps its interval"
    (own,) = average_by_variant([*rows, Score("glue", "accuracy", 0.5, **model)])
    assert own.value == 0.5


def test_what_is_not_finite_was_not_measured() -> None:
    rows = (loss(math.nan, "a"), loss(4.0, "b"), replace(loss(5.0, "c"), low=4.0, high=math.inf))
    own = average_by_variant(of(*rows).rows.where(measure=MASKED_LM))
    assert [(row.arm, row.low) for row in own] == [("b", None), ("c", None)]


def test_losses_are_ranked_and_claim_no_more_than_their_intervals() -> None:
    text, state = answers(page.held_out_findings(of(loss(4.1, "ltg"), loss(4.0, "elc"))))["What is the held-out loss?"]
    assert text.startswith("Held-out loss in nats per masked token: elc 4.000, ltg 4.100.")
    assert state is None
    known = of(loss(4.1, "ltg", half=0.01))
    assert next(page.held_out_findings(known)).verdict == "supported"


def test_an_arm_at_chance_is_not_said_to_know() -> None:
    rows = [
        Score("blimp", "accuracy", value, value - 0.01, value + 0.01, arm=arm)
        for arm, value in (("elc", 0.6), ("ltg", 0.505), ("zero", 0.45))
    ]
    assert next(page.suite_findings(of(*rows[:2]))).answer.endswith("above chance (50 %): elc.")
    assert next(page.suite_findings(of(*rows))).answer.endswith("above chance (50 %): elc; below it: zero.")


def test_negative_weights_are_frames_and_greater_weights_are_stronger() -> None:
    cells = ((0, 0, 1.0), (1, 0, -0.5), (1, 1, 0.25))
    rows = [Score(ALPHA, "weight", value, arm="a", seed=0, layer=n, source=source) for n, source, value in cells]
    tones = weight_table(of(*rows), "a").tones
    assert [(tones[at].name, tones[at].strength) for at in ((1, 1), (1, 2))] == [("negative", 1.0), ("weight", 0.5)]


@pytest.mark.parametrize(
    ("low", "high", "words"), [(0.0, 0.04, "uniform"), (0.06, 0.2, "not uniform"), (0.04, 0.06, "inconclusive")]
)
def test_uniform_is_an_equivalence(low: float, high: float, words: str) -> None:
    distance = Score(UNIFORMITY, "distance", (low + high) / 2, low, high, arm="elc")
    text, state = answers(page.stability_findings(of(distance)))["Are the layer weights uniform?"]
    assert text.startswith(f"elc {words}, distance ")
    assert state == ("inconclusive" if words == "inconclusive" else "supported")


def test_costs_are_multiples_of_the_backbone_where_there_is_one(data: ReportData) -> None:
    head, *lines = table(page.PRETRAINING, data, "costs")
    step = head.index("step (s)")
    assert lines[1][step] == "0.481 [×1.07]"
    alone = of(*Rows(data.scores).where(measure=TRAINING, arm="elc"), loss(4.0, "elc"))
    found = table(page.PRETRAINING, alone, "costs")[1]
    assert found[step] == "0.481", "without a backbone there is nothing to compare with"


def test_an_unfinished_training_is_announced(data: ReportData) -> None:
    cut = [row for row in data.scores if (row.measure, row.metric, row.arm, row.seed) != (TRAINING, "steps", "elc", 1)]
    assert "1 training (elc/1) is incomplete" in render(replace(data, scores=tuple(cut)))
