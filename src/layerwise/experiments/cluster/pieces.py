"""Pieces of an experiment that report as they go, such as trainings: here as ever, in a worker through its driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from rich.text import Text

from layerwise.errors import RunError
from layerwise.experiments.reporter import Reporter
from layerwise.measure.workers import Emit, Plain, Spread

EVERY = 0.5
"""Seconds between two words of a worker on how far its piece is."""

Work = Callable[[Plain, Reporter], None]
"""Carries a piece out, and says so to a reporter; what it finds out it writes into the run folder."""


class Telling:
    """The reporter of a worker: what it is told goes to the process that handed out the piece."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._last = -EVERY

    def log(self, text: str) -> None:
        """Pass a sentence on."""
        self._emit(("log", text))

    def progress(self, label: str, share: float, seconds_left: float | None = None) -> None:
        """Pass a share on, now and then: what draws it is far away."""
        now = time.monotonic()
        if now - self._last >= EVERY:
            self._last = now
            self._emit(("progress", label, share))

    def result(self, text: str | Text) -> None:
        """Results are made where the rows are."""


def carried_out(
    spread: Spread, pieces: Sequence[Plain], work: Work, reporter: Reporter, what: str = "trainings"
) -> Iterator[int]:
    """The numbers of the pieces, as they are done; in this process each reports by itself, elsewhere all together.

    `what` they are called together.
    """
    shares = [0.0] * len(pieces)

    def on_partial(number: int, news: Plain) -> None:
        if news[0] == "log":
            reporter.log(news[1])
            return
        shares[number] = min(1.0, news[2])
        reporter.progress(f"{what}: {news[1]}", sum(shares) / len(shares))

    def here(piece: Plain, emit: Emit) -> None:
        work(piece, reporter)

    for number, _ in spread.map(pieces, here, on_partial=on_partial):
        shares[number] = 1.0
        yield number


def refuse_unseen(what: str, spread: Spread, is_there: bool) -> None:
    """Raise `RunError` where a worker wrote what this process does not see."""
    if not is_there and not spread.is_here:
        raise RunError(
            f"{what} was finished by a worker, and is not in the run folder of this machine; put the run folder on a "
            "disk that every machine of the cluster sees (--run FOLDER)"
        )
