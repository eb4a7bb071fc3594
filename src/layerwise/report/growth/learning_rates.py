"""The learning rates that were tried before arms were compared, and the one that each arm was given.

A comparison with a side that was not tuned says nothing. What was tried is shown for every side; a rate that was chosen
at the end of those tried may not be the best, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from layerwise.report.growth.lookup import RATES, GrowthScores
from layerwise.results.rows import Score

LOSS, CHOSEN = "nll", "chosen"
WARMUP = "warmup_"
"""How the metrics of warm-ups that were tried begin, as shares of the steps."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The sweep of one arm: rate (or warm-up) to validation loss, in ascending order, and the one that was chosen."""

    arm: str
    losses: Mapping[float, Score]
    chosen: float | None

    @property
    def at_end(self) -> bool:
        """Whether the chosen rate is the least or the greatest of several: a better one may lie beyond it."""
        return len(self.losses) > 1 and self.chosen in (min(self.losses), max(self.losses))

    @property
    def is_least(self) -> bool:
        """Whether the chosen rate has the least loss of those tried, as it should."""
        least = min(self.losses, key=lambda rate: self.losses[rate].value, default=None)
        return self.chosen is not None and self.chosen == least


def tunings(run: GrowthScores, what: str = "") -> tuple[Tuning, ...]:
    """The sweep of rates, or with `WARMUP` of warm-ups, of every arm that had one, in the order of the rows."""
    return tuple(_tuning(run, arm, what) for arm in run.measured(RATES, what + LOSS))


def _tuning(run: GrowthScores, arm: str, what: str) -> Tuning:
    rows = run.tasks(RATES, what + LOSS, arm)
    losses = {rate: score for task, score in rows.items() if (rate := _number(task)) is not None}
    chosen = [_number(task) for task, score in run.tasks(RATES, what + CHOSEN, arm).items() if score.value == 1.0]
    return Tuning(arm, dict(sorted(losses.items())), next(iter(chosen), None))


def _number(text: str) -> float | None:
    """A rate as a number, `None` where the text is none.

    >>> _number("3e-4"), _number("all")
    (0.0003, None)
    """
    try:
        return float(text)
    except ValueError:
        return None
