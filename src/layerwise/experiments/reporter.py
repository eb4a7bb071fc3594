"""Who is informed while an experiment runs: a terminal, a notebook, or nobody."""

from __future__ import annotations

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
