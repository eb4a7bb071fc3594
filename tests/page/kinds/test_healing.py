"""The page of a healing claims no more than its intervals show."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from layerwise.page import ReportData
from layerwise.results.rows import Score
from layerwise.studies.heal.page import derive_window_accuracy, write_findings
from tools.golden.outputs import stored

RUN = stored("healing-planted")
WITHOUT_WINDOWS = [row for row in RUN.scores if row.measure != "healing_window"]


def healed(count: int, low: float, high: float, against: str | None = "identity") -> Score:
    columns: dict[str, Any] = {"condition": "healed", "affected": count, "against": against}
    return Score("healing_window", "above_original", (low + high) / 2, low, high, **columns)


def window_rows(crossing: float, low: float, high: float, *intervals: tuple[float, float]) -> Iterator[Score]:
    yield Score("healing_window", "layers", crossing, low, high, condition="healed", against="identity")
    for count, (least, most) in enumerate(intervals, start=1):
        yield healed(count, least, most)


def data(scores: Iterable[Score]) -> ReportData:
    return ReportData({"model": "m", "corpus": "c"}, (), tuple(scores))


@pytest.mark.parametrize(
    ("seeds", "documents", "said"),
    [
        (3, 148, "Intervals of trained models are over 3 seeds and 148 documents."),
        (2, 7, "Intervals of trained models are over 2 seeds and the text windows of 7 documents."),
        (1, 148, "With one seed, intervals are over 148 documents only. Another seed may differ"),
    ],
)
def test_the_units_of_intervals_are_reported(seeds: int, documents: int, said: str) -> None:
    own = [Score("healing", "nll", 2.0, variant="lora", seed=seed, documents=documents) for seed in range(seeds)]
    assert said in " ".join(write_findings(data(own)))


HELPS, HURTS, OPEN = (-0.2, -0.1), (0.1, 0.2), (-0.1, 0.1)


@pytest.mark.parametrize(
    ("intervals", "said", "is_pattern"),
    [
        ((HURTS, HURTS), "skipping 1 and 2 layers hurts.", False),
        (
            (HELPS, HURTS, HURTS),
            "skipping 1 layer helps and skipping 2 and 3 layers hurts, so only a few layers can be skipped.",
            True,
        ),
        ((HURTS, HELPS), "skipping 2 layers helps and skipping 1 layer hurts.", False),
        (
            (HELPS, OPEN, HURTS),
            "skipping 1 layer helps, skipping 3 layers hurts and skipping 2 layers is inconclusive.",
            False,
        ),
        ((OPEN,), "skipping 1 layer is inconclusive.", False),
    ],
)
def test_the_window_pattern_follows_the_intervals(
    intervals: tuple[tuple[float, float], ...], said: str, is_pattern: bool
) -> None:
    text = " ".join(write_findings(data(window_rows(0.0, 0.0, 0.0, *intervals))))
    assert f"Compared with the control, {said}" in text
    assert ("only a few layers can be skipped" in text) == is_pattern


def answers(*gains: tuple[float, float]) -> Iterator[Score]:
    shared: dict[str, Any] = {"task": "quiz", "documents": 40}
    yield Score("healing_task", "accuracy", 0.25, against="chance", **shared)
    for variant in ("original", "pruned", "full-teacher", "identity"):
        yield Score("healing_task", "accuracy", 0.5, 0.4, 0.6, variant=variant, **shared)
    for against in ("original", "identity"):
        own: dict[str, Any] = {"variant": "full-teacher", "against": against, **shared}
        yield Score("healing_task", "difference", -0.1, -0.15, -0.05, **own)
    for count, (low, high) in enumerate(gains, start=1):
        for condition in ("before", "healed"):
            own = {"variant": f"skip-{count}", "condition": condition, "affected": count, **shared}
            yield Score("healing_task", "accuracy", 0.3, 0.2, 0.4, **own)
            yield Score("healing_task", "difference", -0.2, -0.3, -0.1, against="original", **own)
        yield Score("healing_task", "difference", (low + high) / 2, low, high, against="identity", **own)


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        (
            (HURTS, HELPS),
            "skipping 1 layer helps and skipping 2 layers hurts, so only a few layers can be skipped.",
        ),
        ((HELPS, HURTS), "skipping 2 layers helps and skipping 1 layer hurts."),
        ((OPEN, HELPS), "skipping 2 layers hurts and skipping 1 layer is inconclusive."),
    ],
)
def test_the_benchmark_pattern_counts_higher_accuracy_as_help(
    gains: tuple[tuple[float, float], ...], said: str
) -> None:
    text = " ".join(write_findings(data([*WITHOUT_WINDOWS, *answers(*gains)])))
    assert f"On quiz, compared with the control, {said}" in text
    assert "On quiz full-teacher has −10.0 [−15.0, −5.0] points of accuracy compared with the original" in text


def test_the_benchmark_curve_starts_at_the_original_model_and_the_control() -> None:
    rows = list(derive_window_accuracy(data([*WITHOUT_WINDOWS, *reversed(list(answers(HELPS, HURTS)))])))
    amounts = [row.affected for row in rows if row.against is None]
    assert amounts == sorted(amounts)
    points = {(row.condition, row.affected, row.against) for row in rows}
    assert points == {
        *((condition, count, None) for condition in ("before", "healed") for count in range(3)),
        *((None, count, "chance") for count in range(3)),
    }
