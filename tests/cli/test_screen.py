"""What a terminal shows: sentences as they are, and a bar that tells the time honestly."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from layerwise.cli import screen
from layerwise.measure.sweep import Bill, Meter


def shown(text: str, terminal: bool) -> list[str]:
    file = io.StringIO()
    screen.write(Console(file=file, width=30, force_terminal=terminal, no_color=True), text)
    return file.getvalue().splitlines()


def test_a_pipe_gets_whole_lines_and_a_terminal_words() -> None:
    sentence = "ten layers ran, and one of them did not matter"
    assert shown(sentence, terminal=False) == [sentence]
    assert [line.rstrip() for line in shown(sentence, terminal=True)] == [
        "ten layers ran, and one of",
        "them did not matter",
    ]


def test_brackets_are_no_markup() -> None:
    assert shown("0-3 [bold](4|5)[/] [red]", terminal=False) == ["0-3 [bold](4|5)[/] [red]"]


def test_a_caret_stays_under_its_character() -> None:
    lines = "what is wrong\n  0-3 (4|5 and a text that is longer than the terminal\n      ^"
    assert shown(lines, terminal=True) == lines.splitlines()


@pytest.mark.parametrize(
    ("quiet", "terminal", "visible"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_the_bar_is_seen_in_a_terminal_unless_quiet(
    monkeypatch: pytest.MonkeyPatch, quiet: bool, terminal: bool, visible: bool
) -> None:
    file = io.StringIO()
    monkeypatch.setattr(screen, "errors", Console(file=file, width=80, force_terminal=terminal))
    due = Bill(10, 20, 3, layer_tokens=1000, head_tokens=100)
    with screen.SweepBar(quiet) as bar:
        bar.update(Meter(layer_tokens=250, head_tokens=25, layer_seconds=20.0, head_seconds=5.0), due)
    drawn = file.getvalue()
    assert ("sweep" in drawn) == visible
    # 25 seconds for a quarter of the work: 75 to go, whatever the clock says.
    assert ("1 min 15 s to go" in drawn) == visible
    assert ("25 %" in drawn) == visible


def test_the_bar_goes_when_the_sweep_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows the sweep says so in words; a full bar with no time to go would look stuck."""
    monkeypatch.setattr(screen, "errors", Console(file=io.StringIO(), width=80, force_terminal=True))
    with screen.SweepBar(False) as bar:
        bar.update(Meter(1000, 99, 20.0, 5.0), Bill(10, 20, 3, layer_tokens=1000, head_tokens=100))
        assert bar._bar.tasks[0].visible
        bar.update(Meter(1000, 100, 20.0, 5.0), Bill(10, 20, 3, layer_tokens=1000, head_tokens=100))
        assert not bar._bar.tasks[0].visible


def test_before_anything_is_measured_no_time_is_made_up() -> None:
    assert Meter().seconds_left(Bill(10, 20, 3, 1000, 100)) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (7260, "2 h 1 min")],
)
def test_durations_in_the_unit_a_person_would_use(seconds: float, words: str) -> None:
    assert screen.duration(seconds) == words


@pytest.mark.parametrize(("quiet", "terminal", "said"), [(False, False, 3), (True, False, 0), (False, True, 0)])
def test_a_pipe_hears_of_progress_now_and_then(
    quiet: bool, terminal: bool, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, now = io.StringIO(), [100.0]
    monkeypatch.setattr(screen, "errors", Console(file=file, width=80, force_terminal=terminal, no_color=True))
    monkeypatch.setattr(screen.time, "monotonic", lambda: now[0])
    bar = screen.PartBar(quiet)
    for second in range(40):
        now[0] = 100.0 + second
        bar.update("a part", second / 40)
    lines = file.getvalue().splitlines()
    assert len(lines) == said
    assert lines in ([], ["a part: 25%", "a part: 50%", "a part: 75%"])
