"""What a terminal shows: sentences as they are, and a bar that tells the time honestly."""

import io

import pytest
from rich.console import Console

from layerwise.experiments import terminal
from layerwise.experiments.reporter import duration


def shown(text: str, is_terminal: bool) -> list[str]:
    file = io.StringIO()
    terminal.write(Console(file=file, width=30, force_terminal=is_terminal, no_color=True), text)
    return file.getvalue().splitlines()


def test_a_pipe_gets_whole_lines_and_a_terminal_words() -> None:
    sentence = "ten layers ran, and one of them did not matter"
    assert shown(sentence, is_terminal=False) == [sentence]
    assert [line.rstrip() for line in shown(sentence, is_terminal=True)] == [
        "ten layers ran, and one of",
        "them did not matter",
    ]


def test_brackets_are_no_markup() -> None:
    assert shown("0-3 [bold](4|5)[/] [red]", is_terminal=False) == ["0-3 [bold](4|5)[/] [red]"]


def test_a_caret_stays_under_its_character() -> None:
    lines = "what is wrong\n  0-3 (4|5 and a text that is longer than the terminal\n      ^"
    assert shown(lines, is_terminal=True) == lines.splitlines()


@pytest.mark.parametrize(
    ("quiet", "is_terminal", "visible"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_the_bar_is_seen_in_a_terminal_unless_quiet(
    monkeypatch: pytest.MonkeyPatch, quiet: bool, is_terminal: bool, visible: bool
) -> None:
    file = io.StringIO()
    monkeypatch.setattr(terminal, "errors", Console(file=file, width=80, force_terminal=is_terminal))
    with terminal.Terminal(quiet) as reporter:
        reporter.progress("sweep", 0.25, 75.0)
    drawn = file.getvalue()
    assert ("sweep" in drawn) == visible
    assert ("1 min 15 s left" in drawn) == visible
    assert ("25 %" in drawn) == visible


def test_the_bar_goes_when_its_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "errors", Console(file=io.StringIO(), width=80, force_terminal=True))
    with terminal.Terminal() as reporter:
        reporter.progress("sweep", 0.99, 1.0)
        assert reporter._bar is not None
        reporter.progress("sweep", 1.0)
        assert reporter._bar is None


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_draws_a_bar_where_it_has_widgets(monkeypatch: pytest.MonkeyPatch, has_widgets: bool) -> None:
    drawn: list[float] = []
    monkeypatch.setattr(terminal, "errors", Console(file=io.StringIO(), force_jupyter=True))
    monkeypatch.setattr(terminal, "find_spec", lambda name: object() if has_widgets else None)
    reporter = terminal.Terminal()
    monkeypatch.setattr(reporter, "_draw", lambda label, share, left: drawn.append(share))
    reporter.progress("sweep", 0.25)
    assert drawn == ([0.25] if has_widgets else [])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (7260, "2 h 1 min")],
)
def test_durations_in_the_unit_a_person_would_use(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(("quiet", "is_terminal", "count"), [(False, False, 3), (True, False, 0), (False, True, 0)])
def test_a_pipe_gets_a_line_of_progress_now_and_then(
    quiet: bool, is_terminal: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, now = io.StringIO(), [100.0]
    monkeypatch.setattr(terminal, "errors", Console(file=file, width=80, force_terminal=is_terminal, no_color=True))
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    reporter = terminal.Terminal(quiet)
    if is_terminal:
        monkeypatch.setattr(reporter, "_draw", lambda *_: None)
    for second in range(40):
        now[0] = 100.0 + second
        reporter.progress("a part", second / 40)
    lines = file.getvalue().splitlines()
    assert len(lines) == count
    assert lines in ([], ["a part: 25%", "a part: 50%", "a part: 75%"])
