"""The report of a healing from planted rows: what the sentences decide, what the tables hold, a page that is whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from layerwise.report import ReportData, render
from layerwise.report.kinds.healing import answers_by_window, findings
from layerwise.results.rows import Score


def rows(*, net: float = 0.7, p: float = 0.01, windows: bool = True) -> Iterator[Score]:
    for task, lost in (("all", 0.3), ("sort", 1.0)):
        own: dict[str, Any] = {"task": task}
        for arm, seed, nll in (
            ("untouched", None, 2.0), ("pruned", None, 2.0 + lost), ("full-teacher", 0, 2.1), ("full-teacher", 1, 2.12),
        ):  # fmt: skip
            yield Score("healing", "nll", nll, arm=arm, seed=seed, **own)
            yield Score("healing", "accuracy", 0.5, arm=arm, seed=seed, **own)
        yield Score("healing", "lost", lost, lost - 0.1, lost + 0.1, arm="pruned", documents=40, **own)
        for arm, above in (("full-teacher", 0.11), ("whole", -0.02), ("random", 0.2)):
            yield Score("healing", "nll", 2 + above, 1.9 + above, 2.1 + above, arm=arm, **own)
            yield Score("healing", "accuracy", 0.4, arm=arm, **own)
            yield Score("healing", "above_whole", above, above - 0.01, above + 0.01, arm=arm, **own)
        yield Score("healing", "regained_share", net + 0.05, net, net + 0.1, arm="full-teacher", **own)
        yield Score("healing", "net_share", net, net - 0.1, net + 0.1, arm="full-teacher", **own)
    main: dict[str, Any] = {"arm": "full-teacher"}
    yield Score("healing_contrast", "nll", -0.01, -0.02, 0.0, p, p, 0.015, 3, against="full-labels", **main)
    yield Score("healing_rate", "validation_nll", 2.2, amount=0.001, **main)
    yield Score("healing_rate", "validation_nll", 2.1, amount=0.002, **main)
    yield Score("healing_rate", "chosen_at_end", 1.0, amount=0.002, **main)
    yield Score("healing_cost", "tokens", 1000.0, seed=0, **main)
    if windows:
        for count in range(3):
            yield healed(count, count - 0.6, count - 0.4, against=None)
        yield from window_rows(0.5, 0.4, 0.6, (0.5, 0.6), (1.5, 1.6))


def healed(count: int, low: float, high: float, against: str | None = "whole") -> Score:
    columns: dict[str, Any] = {"condition": "healed", "amount": count, "against": against}
    return Score("healing_window", "above_whole", (low + high) / 2, low, high, **columns)


def window_rows(crossing: float, low: float, high: float, *intervals: tuple[float, float]) -> Iterator[Score]:
    """Where healing stops to make up beside the whole model trained as long, and each number of skipped layers."""
    yield Score("healing_window", "layers", crossing, low, high, condition="healed", against="whole")
    for count, (least, most) in enumerate(intervals, start=1):
        yield healed(count, least, most)


def data(scores: Iterable[Score]) -> ReportData:
    return ReportData({"model": "m", "corpus": "c"}, (), tuple(scores))


def text(**options: Any) -> str:
    return " ".join(findings(data(rows(**options))))


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
    text = " ".join(findings(data(window_rows(0.0, 0.0, 0.0, *intervals))))
    assert f"Beside the whole model trained as long {said}" in text
    assert ("few help, many hurt" in text) == is_pattern


def test_without_the_control_the_sentence_says_that_the_text_is_not_taken_off() -> None:
    text = " ".join(findings(data(healed(count, 0.4, 0.6, against=None) for count in (1, 2))))
    assert (
        "Beside the untouched whole model skipping 1 and 2 hurts. What the text alone gives is not taken off." in text
    )


def answers(*gains: tuple[float, float]) -> Iterator[Score]:
    """A benchmark of models that are healed with 1, 2, ... layers skipped: intervals of what they answer more."""
    shared: dict[str, Any] = {"task": "quiz", "documents": 40}
    yield Score("healing_task", "accuracy", 0.25, against="chance", **shared)
    for arm in ("untouched", "pruned", "full-teacher", "whole"):
        yield Score("healing_task", "accuracy", 0.5, 0.4, 0.6, arm=arm, **shared)
    for against in ("untouched", "whole"):
        own: dict[str, Any] = {"arm": "full-teacher", "against": against, **shared}
        yield Score("healing_task", "difference", -0.1, -0.15, -0.05, **own)
    for count, (low, high) in enumerate(gains, start=1):
        for condition in ("before", "healed"):
            own = {"arm": f"skip-{count}", "condition": condition, "amount": count, **shared}
            yield Score("healing_task", "accuracy", 0.3, 0.2, 0.4, **own)
            yield Score("healing_task", "difference", -0.2, -0.3, -0.1, against="untouched", **own)
        yield Score("healing_task", "difference", (low + high) / 2, low, high, against="whole", **own)


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        ((HURTS, HELPS), "skipping 1 helps and skipping 2 hurts: few help, many hurt."),
        ((HELPS, HURTS), "skipping 2 helps and skipping 1 hurts."),
        ((OPEN, HELPS), "skipping 2 hurts and skipping 1 is not resolvable."),
    ],
)
def test_more_right_answers_are_a_help(gains: tuple[tuple[float, float], ...], said: str) -> None:
    """Of a benchmark more is better: the intervals that help in nats hurt here."""
    text = " ".join(findings(data([*rows(windows=False), *answers(*gains)])))
    assert f"On quiz, beside the whole model trained as long, {said}" in text
    assert "On quiz full-teacher has −10.0 [−15.0, −5.0] points of accuracy beside the untouched model." in text


def test_the_curve_of_a_benchmark_begins_at_the_untouched_and_at_the_control() -> None:
    points = {
        (row.condition, row.amount, row.against)
        for row in answers_by_window(data([*rows(windows=False), *answers(HELPS, HURTS)]))
    }
    assert points == {
        *((condition, count, None) for condition in ("before", "healed") for count in range(3)),
        *((None, count, "chance") for count in range(3)),
    }


@pytest.mark.parametrize("gains", [(), (HELPS, HURTS)])
def test_the_page_has_the_curve_where_windows_have_answers(gains: tuple[tuple[float, float], ...]) -> None:
    page = render(data([*rows(windows=False), *answers(*gains)]))
    assert ("Benchmarks: few layers skipped, and many" in page) == bool(gains)
