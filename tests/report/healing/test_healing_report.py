"""The report of a healing from planted rows: what the sentences decide, what the tables hold, a page that is whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from layerwise.report import HealingScores, ReportData, healing_lines, render
from layerwise.report.healing.tables import healing_sentences, task_table
from layerwise.results.rows import Score


def rows(*, net: float = 0.7, p: float = 0.01, windows: bool = True) -> Iterator[Score]:
    for task, lost in (("all", 0.3), ("sort", 1.0)):
        for name, nll in (
            ("untouched", 2.0),
            ("pruned", 2.0 + lost),
            ("full-teacher/0", 2.1),
            ("full-teacher/1", 2.12),
        ):
            yield Score("healing", name, task, "nll", nll)
            yield Score("healing", name, task, "accuracy", 0.5)
        yield Score("healing", "pruned", task, "lost", lost, lost - 0.1, lost + 0.1, documents=40)
        for arm, above in (("full-teacher", 0.11), ("whole", -0.02), ("random", 0.2)):
            yield Score("healing", arm, task, "nll", 2 + above, 1.9 + above, 2.1 + above)
            yield Score("healing", arm, task, "accuracy", 0.4)
            yield Score("healing", arm, task, "above_whole", above, above - 0.01, above + 0.01)
        yield Score("healing", "full-teacher", task, "regained_share", net + 0.05, net, net + 0.1)
        yield Score("healing", "full-teacher", task, "net_share", net, net - 0.1, net + 0.1)
    yield Score("healing_contrast", "full-teacher", "all", "nll@full-labels", -0.01, -0.02, 0.0, p, p, 0.015, 3)
    yield Score("healing_rate", "full-teacher", "0.001", "validation_nll", 2.2)
    yield Score("healing_rate", "full-teacher", "0.002", "validation_nll", 2.1)
    yield Score("healing_rate", "full-teacher", "0.002", "chosen_at_end", 1.0)
    yield Score("healing_cost", "full-teacher/0", "all", "tokens", 1000.0)
    if windows:
        for count in range(3):
            yield Score("healing_window", "healed", str(count), "above_whole", count - 0.5, count - 0.6, count - 0.4)
        yield from window_rows(0.5, 0.4, 0.6, (0.5, 0.6), (1.5, 1.6))


def window_rows(crossing: float, low: float, high: float, *intervals: tuple[float, float]) -> Iterator[Score]:
    """Where healing stops to make up beside the whole model trained as long, and each number of skipped layers."""
    yield Score("healing_window", "crossing@whole", "all", "layers", crossing, low, high)
    for count, (least, most) in enumerate(intervals, start=1):
        yield Score("healing_window", "healed@whole", str(count), "above_whole", (least + most) / 2, least, most)


def text(**options: Any) -> str:
    return " ".join(healing_sentences(HealingScores.of(rows(**options))))


def test_the_sentences_say_what_was_lost_regained_and_decided() -> None:
    said = text()
    assert "The plan loses 0.300 [0.200, 0.400] nats a token" in said
    assert "full-teacher regains 75.0 [70.0, 80.0] % of it, 70.0 [60.0, 80.0] % net" in said
    assert "full-teacher is better than full-labels" in said
    assert "no worse than the whole model trained as long up to 0.500 [0.400, 0.600] middle layers" in said
    assert "The best learning rate of full-teacher, 0.002, is at the end of those tried" in said


def test_what_is_not_resolvable_is_called_that_with_what_would_have_been_seen() -> None:
    assert "full-teacher against full-labels: not resolvable in 3 seeds" in text(p=0.4)
    assert "above 0.0150 it would have been seen" in text(p=0.4)


HELPS, HURTS, OPEN = (-0.2, -0.1), (0.1, 0.2), (-0.1, 0.1)


@pytest.mark.parametrize(
    ("intervals", "said", "is_pattern"),
    [
        ((HURTS, HURTS), "skipping 1 and 2 hurts.", False),
        ((HELPS, HURTS, HURTS), "skipping 1 helps and skipping 2 and 3 hurts: few help, many hurt.", True),
        ((HURTS, HELPS), "skipping 2 helps and skipping 1 hurts.", False),
        ((HELPS, OPEN, HURTS), "skipping 1 helps, skipping 3 hurts and skipping 2 is not resolvable.", False),
        ((OPEN,), "skipping 1 is not resolvable.", False),
    ],
)
def test_few_help_and_many_hurt_only_where_the_intervals_say_so(
    intervals: tuple[tuple[float, float], ...], said: str, is_pattern: bool
) -> None:
    scores = HealingScores.of(window_rows(0.0, 0.0, 0.0, *intervals))
    text = " ".join(healing_sentences(scores))
    assert f"Beside the whole model trained as long {said}" in text
    assert ("few help, many hurt" in text) == is_pattern


def test_without_the_control_the_sentence_says_that_the_text_is_not_taken_off() -> None:
    rows = [Score("healing_window", "healed", str(count), "above_whole", 0.5, 0.4, 0.6) for count in (1, 2)]
    text = " ".join(healing_sentences(HealingScores.of(rows)))
    assert (
        "Beside the untouched whole model skipping 1 and 2 hurts. What the text alone gives is not taken off." in text
    )


def test_every_task_and_model_has_a_row() -> None:
    table = task_table(HealingScores.of(rows()))
    assert [(row[0], row[1]) for row in table.body] == [
        (task, name) for task in ("all", "sort") for name in ("untouched", "pruned", "full-teacher", "whole", "random")
    ]
    assert healing_lines(HealingScores.of(rows()))[0].startswith("task")
    assert healing_lines(HealingScores.of([])) == []


@pytest.mark.parametrize("windows", [True, False])
def test_the_page_is_whole(windows: bool) -> None:
    page = render(ReportData({"model": "m", "corpus": "c"}, (), tuple(rows(windows=windows))))
    assert "What healing brings back" in page
    assert ("Few layers skipped, and many" in page) == windows
    assert page.rstrip().endswith("</html>")
