"""What the terminal shows: two consoles, sentences, and the progress bars."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from unicodedata import category

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

if TYPE_CHECKING:
    from layerwise.measure.sweep import Bill, Meter

output = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def write(console: Console, text: str, style: str = "") -> None:
    """Print `text` as it is: brackets are not markup, and what would steer a terminal is spelt out.

    A terminal gets lines broken between words; a file or a pipe gets them whole, and so do indented lines, whose
    columns mean something.
    """
    for line in text.splitlines():
        console.print(Text(_printable(line), style), soft_wrap=not console.is_terminal or line.startswith(" "))


def _printable(line: str) -> str:
    """A line whose control characters, and what is no Unicode, are written as escapes: names come from anywhere.

    >>> _printable("demo\x1b[2J")
    'demo\\\\x1b[2J'
    """
    shown = (sign if sign == "\t" or category(sign) not in ("Cc", "Cs") else ascii(sign)[1:-1] for sign in line)
    return "".join(shown)


EVERY = 10.0
"""Seconds between two lines of progress, where no terminal shows a bar."""


class _Lines:
    """Progress as lines, now and then, for a file or a pipe: nobody waits before a screen that says nothing."""

    def __init__(self, quiet: bool) -> None:
        self._wanted = not quiet and not errors.is_terminal
        self._last = time.monotonic()

    def tell(self, text: str) -> None:
        """Print the text, unless the last one was printed a moment ago."""
        if self._wanted and time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            write(errors, text)


class SweepBar:
    """The bar of one sweep: work done by its measured cost, and the time to go at the measured speed.

    It vanishes when the sweep is done. Where there is no terminal a line now and then says the same.
    """

    def __init__(self, quiet: bool) -> None:
        self._lines = _Lines(quiet)
        self._bar = Progress(
            TextColumn("sweep"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(), _TimeLeft(),
            console=errors, transient=True, disable=quiet or not errors.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("sweep", total=1.0, left=None)

    def __enter__(self) -> SweepBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, meter: Meter, bill: Bill) -> None:
        """Show the state of the sweep."""
        left = meter.seconds_left(bill)
        spent = meter.layer_seconds + meter.head_seconds
        done = spent / (spent + left) if left is not None and spent + left > 0 else 0.0
        self._bar.update(self._task, completed=done, left=left, visible=meter.head_tokens < bill.head_tokens)
        self._lines.tell(f"sweep: {done:.0%}" + ("" if left is None else f", {duration(left)} to go"))


class PartBar:
    """The bar of an examination: the part under way and the share of it that is done.

    It vanishes when the examination is done. Where there is no terminal a line now and then says the same.
    """

    def __init__(self, quiet: bool) -> None:
        self._lines = _Lines(quiet)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(), TimeRemainingColumn(), console=errors, transient=True,
            disable=quiet or not errors.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=1.0, visible=False)
        self._part = ""

    def __enter__(self) -> PartBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, part: str, share: float) -> None:
        """Show how far `part` is."""
        if part != self._part:
            self._bar.reset(self._task, total=1.0, description=part)
            self._part = part
        self._bar.update(self._task, completed=share, visible=share < 1)
        self._lines.tell(f"{part}: {share:.0%}")


class _TimeLeft(ProgressColumn):
    """The seconds left, as the meter reckons them."""

    def render(self, task: Task) -> Text:
        left = task.fields.get("left")
        return Text("" if left is None else f"{duration(left)} to go", style="progress.remaining")


def duration(seconds: float) -> str:
    """A span of time in the unit a person would use.

    >>> duration(75)
    '1 min 15 s'
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
