"""What findings read of the rows of a run, and what they say if the run does not decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from layerwise.page.data import ReportData
from layerwise.page.text.number_format import tidy
from layerwise.results.estimate import Estimate
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT
from layerwise.results.vocabulary import CONTRAST, TRAINING, VALIDATION_LOSS

EQUIVALENCE = 1.16
"""(z[.975] + z[.9]) / (z[.975] + z[.8]): how much finer an interval must be to lie inside the margin (80 % power)."""

MAX_TEXT, MAX_SEEDS = 1_000, 100
"""From how many times the present text, or seeds, on the amount needed is no useful answer."""

NULLS = {"baseline": "the baseline", "sequential": "the variant trained as long in order"}
"""The training variants in order that are nulls, and their names in a sentence."""

MAX_LATE_FALL = 0.02
"""A training is finished if at most this share of the fall of its validation loss came in its last quarter."""

NO_INTERVALS = "The contrasts have no intervals: there are fewer than 8 documents."


def read_contrasts(data: ReportData, claim: str, task: str = "all", **columns: Any) -> dict[str, Score]:
    """Return the contrasts of a whole model by metric; `columns` choose those of a layer, a change or a null."""
    of_whole_model = dict.fromkeys(("layer", "condition", "strategy", "affected", "strength", "against"))
    rows = data.rows.where(measure=CONTRAST, claim=claim, task=task, **{**of_whole_model, **columns})
    return {row.metric: row for row in rows}


def read_estimates(data: ReportData, claim: str, *metrics: str) -> tuple[Estimate, ...] | None:
    """Return the contrasts of a whole model in the order of `metrics`; None if one was not measured."""
    rows = read_contrasts(data, claim)
    if not set(metrics) <= set(rows):
        return None
    return tuple(Estimate.read(rows[metric]) for metric in metrics)


def read_nulls(rows: Mapping[str, Score], metric: str) -> dict[str, Estimate]:
    """Return the same metric of the variants trained in order, by name, where it has an interval."""
    read = {name: Estimate.read_bounded(rows.get(f"{metric}@{arm}")) for arm, name in NULLS.items()}
    return {name: estimate for name, estimate in read.items() if estimate is not None}


def find_unfinished(data: ReportData, *arms: str) -> list[str]:
    """Return the training variants whose validation loss was still falling in some seed; none if it was not noted."""
    return [arm for arm in arms if _is_falling(data, arm)]


def _is_falling(data: ReportData, arm: str) -> bool:
    rows = data.rows.where(measure=TRAINING, metric=VALIDATION_LOSS, arm=arm, step=PRESENT, share=None, kept=None)
    for own in rows.by("seed").values():
        losses = {row.step or 0: row.value for row in own}
        early = [loss for step, loss in losses.items() if step <= 0.75 * max(losses)]
        fall = losses[min(losses)] - min(losses.values())
        if not early or min(early) - min(losses.values()) > MAX_LATE_FALL * fall:
            return True
    return False


def describe_undecided(estimate: Estimate, margin: float) -> str:
    """Say why an interval decides nothing, and how much text would."""
    if not estimate.has_interval:
        return NO_INTERVALS
    return f"Its interval allows both answers{describe_text_needed(estimate, margin)}."


def describe_text_needed(estimate: Estimate, margin: float) -> str:
    """Return the amount of text that would decide, as the end of a sentence; empty if it is unknown.

    >>> describe_text_needed(Estimate(0.0, mde=0.1, tokens=1000), 0.05)
    '; about 5,400 tokens would decide'
    """
    if estimate.mde is None or estimate.tokens is None or margin <= 0.0:
        return ""
    times = (EQUIVALENCE * estimate.mde / margin) ** 2
    if times > MAX_TEXT:
        return f"; no text of {MAX_TEXT:,} times this length would decide"
    # Two digits: it is an estimate.
    return f"; about {tidy(float(f'{max(times * estimate.tokens, estimate.tokens + 1):.2g}'))} tokens would decide"


def describe_data_needed(estimate: Estimate, margin: float, what: str) -> str:
    """Return how many times the seeds, images or questions would decide, as a sentence; empty if more would not.

    >>> describe_data_needed(Estimate(0.0, mde=0.2), 0.1, "the questions")
    ' About 5 times the questions would decide.'
    """
    if estimate.mde is None:
        return ""
    times = (EQUIVALENCE * estimate.mde / margin) ** 2
    if times > MAX_SEEDS:
        return f" Not even {MAX_SEEDS} times {what} would decide."
    return f" About {tidy(max(2, round(times)))} times {what} would decide." if times > 1.0 else ""


def select_widest(estimates: Iterable[Estimate]) -> Estimate:
    return max(estimates, key=lambda estimate: estimate.mde or 0.0)
