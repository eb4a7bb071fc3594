"""One runner for every experiment, and what a terminal shows of it."""

import io
import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from rich.console import Console

from layerwise.errors import MeasureError
from layerwise.results import Manifest, Run
from layerwise.results.rows import Score
from layerwise.runner import terminal
from layerwise.runner.arguments import PathLike, Range
from layerwise.runner.reporter import Reporter, Silent, format_duration
from layerwise.runner.result import Result
from layerwise.runner.study import RunDescription, start_run
from layerwise.runner.tasks import Study, Task
from layerwise.runner.verb import verb


class Recorder:
    def __init__(self) -> None:
        self.logs: list[str] = []
        self.results: list[str] = []

    def log(self, text: str) -> None:
        self.logs.append(text)

    def progress(self, label: str, share: float, seconds_left: float | None = None) -> None:
        assert 0 <= share <= 1

    def result(self, text: str) -> None:
        self.results.append(text)


@dataclass(frozen=True)
class Step(Task[None]):
    number: int
    interrupted: bool
    refused: bool

    def execute(self, study: Study) -> None:
        stored = study.store.scores("effect")
        if any(score.claim == str(self.number) for score in stored):
            return
        computed.append(self.number)
        if self.interrupted:
            raise KeyboardInterrupt
        if self.refused:
            raise MeasureError("the last step is not finite")
        study.store.replace_scores("effect", [*stored, Score("effect", "x", 1.0, claim=str(self.number))])


@verb("counting")
def counting(
    steps: Annotated[int, Range(least=1)] = 3,
    *,
    interrupted_at: int | None = None,
    refused: bool = False,
    survives: bool = False,
    run: PathLike = None,
    overwrite: bool = False,
    seed: int = 0,
    reporter: Reporter | None = None,
) -> Result:
    """Count steps."""
    reporter = reporter or Silent()
    reporter.log("opening")
    manifest = Manifest("m", None, "w", "float32", "cpu", "c", "h", 8, 80, 10, ("counting",), (), seed)
    described = RunDescription(
        manifest=manifest,
        lines=[f"{steps} steps"],
        discard=lambda folder: (folder / "model").unlink(missing_ok=True),
    )
    with start_run(described) as study:
        notes = {}
        for number in range(steps):
            step = Step(number, number == interrupted_at, refused and number == steps - 1)
            try:
                study.execute(step)
            except MeasureError as refusal:
                if not survives:
                    raise
                notes["count"] = [str(refusal)]
        study.write([Score("count", "steps", float(steps), claim="all")], notes)
    return Result(study.folder)


computed: list[int] = []


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def subjects(folder: Path) -> list[str]:
    with Run.open(folder) as run:
        return [score.claim for score in run.store.scores("effect")]


def test_a_run_is_named_by_what_it_computes_and_its_report_is_written() -> None:
    reporter = Recorder()
    result = counting(reporter=reporter)
    assert result.folder.parent == Path("runs")
    assert (result.folder / "report.html").is_file()
    assert reporter.logs == ["opening", "3 steps", f"run directory: {result.folder}"]
    assert reporter.results[-1] == f"report: {result.folder / 'report.html'}"
    assert counting(reporter=Silent()).folder == result.folder
    assert counting(seed=1, reporter=Silent()).folder != result.folder


def test_an_interrupted_experiment_says_what_it_leaves_and_goes_on(tmp_path: Path) -> None:
    reporter = Recorder()
    with pytest.raises(KeyboardInterrupt):
        counting(run=tmp_path / "run", interrupted_at=2, reporter=reporter)
    assert "to resume, run the same command again" in reporter.logs[-1]
    assert subjects(tmp_path / "run") == ["0", "1"]
    counting(run=tmp_path / "run", reporter=Silent())
    assert subjects(tmp_path / "run") == ["0", "1", "2"]


def test_ctrl_c_works_again_in_a_process_that_lives_on(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs behind
    try:
        with pytest.raises(KeyboardInterrupt):
            counting(run=tmp_path / "run", interrupted_at=1, reporter=Silent())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("steps", [3, 1])
def test_a_refusal_is_raised_once_the_report_of_any_rows_is_written(tmp_path: Path, steps: int) -> None:
    with pytest.raises(MeasureError, match="not finite"):
        counting(run=tmp_path / "run", steps=steps, refused=True, reporter=Silent())
    assert (tmp_path / "run" / "report.html").is_file() == (steps > 1)


def test_overwrite_discards_rows_and_what_the_experiment_says(tmp_path: Path) -> None:
    counting(run=tmp_path / "run", steps=3, reporter=Silent())
    (tmp_path / "run" / "model").touch()
    counting(run=tmp_path / "run", steps=2, overwrite=True, reporter=Silent())
    assert subjects(tmp_path / "run") == ["0", "1"]
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_manifest_stores_the_options_that_were_given_but_not_overwrite(tmp_path: Path, overwrite: bool) -> None:
    counting(run=tmp_path / "run", steps=2, overwrite=overwrite, reporter=Silent())
    content = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert content["experiment"] == {"experiment": "counting", "run": str(tmp_path / "run"), "steps": 2}


def test_a_complete_run_begins_no_unit_again_and_other_options_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting(run=tmp_path / "run", steps=2, reporter=Silent())
    monkeypatch.setattr(Step, "execute", lambda *_: pytest.fail("a task was begun again"))
    counting(run=tmp_path / "run", steps=2, reporter=(told := Recorder()))
    assert any(text.startswith("report: ") for text in told.results)
    monkeypatch.undo()
    computed.clear()
    counting(run=tmp_path / "run", steps=3, reporter=Silent())
    assert computed == [2]
    with Run.open(tmp_path / "run") as run:
        assert [row.value for row in run.store.scores("count")] == [3.0]


def test_a_study_may_go_on_from_what_a_task_raises(tmp_path: Path) -> None:
    counting(1, run=tmp_path / "run", refused=True, survives=True, reporter=Silent())
    with Run.open(tmp_path / "run") as run:
        assert [note.text for note in run.store.notes("count")] == ["the last step is not finite"]


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
    assert format_duration(seconds) == words


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
