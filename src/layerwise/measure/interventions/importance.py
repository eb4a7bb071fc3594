"""Importance of every layer: the loss increase when it is skipped, in nats/token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from layerwise.errors import MeasureError
from layerwise.plan.schedule.allocation import MIN_EFFECT, Importance
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ABLATION, ALL, DECISIONS, RACING, SKIPPING, VERDICT

if TYPE_CHECKING:
    from layerwise.measure.language.evaluation_data import EvalData
    from layerwise.stack import Stack

SOURCES = {
    VERDICT: "intervals of the verdicts, simultaneous for all layers",
    RACING: "intervals of the race, simultaneous for all layers",
    ABLATION: "intervals of the ablation, at 95 % for each layer separately",
}
"""The measures that contain importance, in order of preference, and a description of their intervals."""


def read_importance(scores: Iterable[Score]) -> tuple[Importance, ...]:
    """Read the importance of layers 0, 1, ... from rows of a diagnosis.

    The rows are those of the first measure in `SOURCES` that is present. Raises `MeasureError` if none is present, or
    if layers or intervals are missing.
    """
    rows = list(scores)
    source = find_source(rows)
    if source is None:
        raise MeasureError(
            "Importance needs the rows of an ablation, got none. Run `layerwise diagnose MODEL --text PATH --parts "
            "ablation` first."
        )
    of_layer = {row.layer: row for row in rows if _is_importance(row, source)}
    # Omitted interventions show as missing layers.
    depth = 1 + max(row.layer for row in rows if row.measure == source and row.layer is not None)
    missing = [str(layer) for layer in range(depth) if layer not in of_layer]
    if missing:
        raise MeasureError(
            f"The rows of measure {source} must have the effect of skipping every layer, got none for layer "
            f"{', '.join(missing)}. Resume the diagnosis."
        )
    return tuple(_importance(of_layer[layer]) for layer in range(depth))


def find_source(scores: Iterable[Score]) -> str | None:
    present = {source for row in scores for source in SOURCES if _is_importance(row, source)}
    return next((source for source in SOURCES if source in present), None)


def estimate_importance(
    stack: Stack, data: EvalData, *, seed: int = 0, margin: float = MIN_EFFECT
) -> tuple[Importance, ...]:
    """Measure the importance of each layer by skipping it on `data`, with the intervals of `compute_verdicts`."""
    from layerwise.measure.interventions.ablation import skip_interventions, skip_keys
    from layerwise.measure.interventions.intervention import intervention_losses
    from layerwise.measure.stats.verdicts import compute_verdicts
    from layerwise.plan import Plan

    losses = intervention_losses(stack, skip_interventions(stack.depth), data)
    baseline = str(Plan.identity(stack.depth))
    return read_importance(compute_verdicts(losses, baseline, skip_keys(stack.depth), seed=seed, margin=margin))


def _is_importance(row: Score, source: str) -> bool:
    metrics = (SKIPPING,) if source == ABLATION else DECISIONS
    is_layer = row.layer is not None and row.part is None and row.against is None
    return is_layer and row.measure == source and row.task == ALL and row.metric in metrics


def _importance(row: Score) -> Importance:
    if row.low is None or row.high is None:
        raise MeasureError(
            f"The effect of skipping layer {row.layer} must have an interval, got none because the text is too short. "
            "Use more text or shorter windows (--max-length)."
        )
    return Importance(row.value, row.low, row.high)
