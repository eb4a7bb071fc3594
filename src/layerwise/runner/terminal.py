"""Report to the terminal: results on stdout, messages and progress on stderr."""

from __future__ import annotations

import time
from importlib.util import find_spec
from types import TracebackType
from typing import Self
from unicodedata import category

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from layerwise.runner.reporter import format_duration

output = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

EVERY = 10.0
"""Seconds between lines of progress if stderr is not a terminal and thus has no progress bar."""


def write(console: Console, text: str, style: str = "") -> None:
    """Print text with escaped control characters. Lines are wrapped only on a terminal."""
    for line in text.splitlines():
        console.print(Text(_printable(line), style), soft_wrap=not console.is_terminal or line.startswith(" "))


def _printable(line: str) -> str:
    characters = (sign if sign == "\t" or category(sign) not in ("Cc", "Cs") else ascii(sign)[1:-1] for sign in line)
    return "".join(characters)


class Terminal:
    """A reporter that prints to the terminal. If `quiet`, it prints only results."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._last = time.monotonic()
        self._label = ""
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove_bar()

    def log(self, text: str) -> None:
        if not self._quiet:
            write(errors, text)

    def result(self, text: str) -> None:
        self._remove_bar()
        write(output, text)

    def progress(self, label: str, share: float, seconds_left: float | None = None) -> None:
        if self._quiet:
            return
        if not _can_draw():
            self._print_line(label, share, seconds_left)
        elif share >= 1:
            self._remove_bar()
        else:
            self._draw(label, share, seconds_left)

    def _print_line(self, label: str, share: float, seconds_left: float | None) -> None:
        if time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            write(errors, f"{label}: {share:.0%}" + _time_left(seconds_left))

    def _draw(self, label: str, share: float, seconds_left: float | None) -> None:
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeElapsedColumn(),
                _TimeLeft(),
                console=errors,
                transient=True,
            )
            self._bar.add_task("", total=1.0)
            self._bar.start()
        (task,) = self._bar.task_ids
        if label != self._label:
            self._label = label
            self._bar.reset(task, total=1.0, description=label)
        self._bar.update(task, completed=share, left=seconds_left)

    def _remove_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._label = None, ""


def _can_draw() -> bool:
    return errors.is_terminal or (errors.is_jupyter and find_spec("ipywidgets") is not None)


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        seconds = task.fields.get("left")
        return Text(
            _time_left(task.time_remaining if seconds is None else seconds).lstrip(", "), style="progress.remaining"
        )


def _time_left(seconds: float | None) -> str:
    return "" if seconds is None else f", {format_duration(seconds)} left"
