"""Pre-trained models: variants, means, failures and costs."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from layerwise.page import ReportData, render
from layerwise.page.finding import Finding
from layerwise.page.trained import average_by_variant
from layerwise.results.rows import Score
from layerwise.results.vocabulary import MASKED_LM, TRAINING, UNIFORMITY
from layerwise.studies.train_elc import page
from page import planted
from page.planted import of


@pytest.fixture(scope="module")
def data() -> ReportData:
    return planted.PRETRAINING


def answers(findings: Iterable[Finding]) -> dict[str, tuple[str, str]]:
    return {each.question: (each.answer, each.verdict) for each in findings}


def loss(value: float, variant: str, seed: int | None = None, half: float | None = None) -> Score:
    bounds = () if half is None else (value - half, value + half)
    return Score(MASKED_LM, "nll", value, *bounds, variant=variant, seed=seed)


def test_a_variant_without_a_row_is_the_mean_of_its_seeds_and_fine_tunings_are_not_counted() -> None:
    model = {"task": "rte", "variant": "a"}
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


def test_losses_are_ranked_and_claim_no_more_than_their_intervals() -> None:
    text, state = answers(page.held_out_findings(of(loss(4.1, "ltg"), loss(4.0, "elc"))))["What is the held-out loss?"]
    assert text.startswith("Held-out loss in nats per masked token: elc 4.000, ltg 4.100.")
    assert state is None
    known = of(loss(4.1, "ltg", half=0.01))
    assert next(page.held_out_findings(known)).verdict == "supported"


def test_a_variant_at_chance_is_not_said_to_know() -> None:
    rows = [
        Score("blimp", "accuracy", value, value - 0.01, value + 0.01, variant=variant)
        for variant, value in (("elc", 0.6), ("ltg", 0.505), ("zero", 0.45))
    ]
    assert next(page.suite_findings(of(*rows[:2]))).answer.endswith("Above chance (50 %): elc.")
    assert next(page.suite_findings(of(*rows))).answer.endswith("Above chance (50 %): elc; below chance: zero.")


@pytest.mark.parametrize(
    ("low", "high", "words"), [(0.0, 0.04, "uniform"), (0.06, 0.2, "not uniform"), (0.04, 0.06, "inconclusive")]
)
def test_uniform_is_an_equivalence(low: float, high: float, words: str) -> None:
    distance = Score(UNIFORMITY, "distance", (low + high) / 2, low, high, variant="elc")
    text, state = answers(page.stability_findings(of(distance)))["Are the layer weights uniform?"]
    assert text.startswith(f"{words.capitalize()}: elc (distance ")
    assert state == ("inconclusive" if words == "inconclusive" else "supported")


def test_an_unfinished_training_is_announced(data: ReportData) -> None:
    cut = [
        row for row in data.scores if (row.measure, row.metric, row.variant, row.seed) != (TRAINING, "steps", "elc", 1)
    ]
    assert "1 training run (elc/1) is incomplete" in render(replace(data, scores=tuple(cut)))
