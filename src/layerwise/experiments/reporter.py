"""Who is informed while an experiment runs: a terminal, a notebook, or nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.text import Text


class Reporter(Protocol):
    """Receives what an experiment says while it runs."""

    def log(self, text: str) -> None:
        """A sentence about what is done: the model, the cost, a note."""

    def progress(self, label: str, share: float, seconds_left: float | None = None) -> None:
        """`share` of the work called `label` is done, between 0 and 1."""

    def result(self, text: str | Text) -> None:
        """A result: what was measured, in sentences or as a table; a `Text` has colours where they can be shown."""


class Silent:
    """The reporter that drops everything."""

    def log(self, text: str) -> None:
        """Drop a sentence."""

    def progress(self, label: str, share: float, seconds_left: float | None = None) -> None:
        """Drop a share."""

    def result(self, text: str | Text) -> None:
        """Drop a result."""


@contextmanager
def waiting(reporter: Reporter, what: str) -> Iterator[None]:
    """Within the context `what` is done, which nobody can say the share of: it is said, and a bar shows the time."""
    reporter.log(what)
    reporter.progress(what, 0.0)
    try:
        yield
    finally:
        reporter.progress(what, 1.0)
