"""Read the importance of every layer from the rows of a diagnosis, for allocating a growth schedule.

Importance is the effect of skipping a layer, in nats/token, with its interval, from the first measure present:
    verdict     all layers together at the family-wise error rate, on all of the text (the race's, without an ablation)
    racing      all layers and looks together, each layer on the text that settled it
    ablation    the metric `skip`; each layer's own 95 % interval, without correction
"""

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
    VERDICT: "intervals of the verdicts, which hold for all layers together",
    RACING: "intervals of the race, which hold for all layers together",
    ABLATION: "intervals of the ablation, at 95 % for each layer alone",
}
"""The measures that hold importance, the best first, and what their intervals are."""


def read_importance(scores: Iterable[Score]) -> tuple[Importance, ...]:
    """Return the importance of layers 0, 1, ... from the best of `SOURCES` among `scores`.

    Raises `MeasureError` if there is none, or layers or intervals are missing.
    """
    rows = list(scores)
    source = find_source(rows)
    if source is None:
        raise MeasureError(
            "there are no rows of an ablation, and importance is what skipping a layer costs: ask for the part "
            "ablation (layerwise diagnose MODEL --text PATH --parts ablation)"
        )
    of_layer = {row.layer: row for row in rows if _is_importance(row, source)}
    # An intervention that was left out shows among the others.
    depth = 1 + max(row.layer for row in rows if row.measure == source and row.layer is not None)
    missing = [str(layer) for layer in range(depth) if layer not in of_layer]
    if missing:
        raise MeasureError(
            f"the rows of measure {source} have no effect of skipping layer {', '.join(missing)}, so the layers cannot "
            "be compared; carry the diagnosis on to its end"
        )
    return tuple(_importance(of_layer[layer]) for layer in range(depth))


def find_source(scores: Iterable[Score]) -> str | None:
    there = {source for row in scores for source in SOURCES if _is_importance(row, source)}
    return next((source for source in SOURCES if source in there), None)


def estimate_importance(
    stack: Stack, data: EvalData, *, seed: int = 0, margin: float = MIN_EFFECT
) -> tuple[Importance, ...]:
    """Measure the importance by skipping each layer of `stack` on `data`, with the intervals of the verdicts.

    Raises what `compute_verdicts` and `intervention_losses` raise.
    """
    from layerwise.measure.interventions.ablation import skip_interventions, skip_keys
    from layerwise.measure.interventions.intervention import intervention_losses
    from layerwise.measure.stats.verdicts import compute_verdicts
    from layerwise.plan import Plan

    losses = intervention_losses(stack, skip_interventions(stack.depth), data)
    baseline = str(Plan.identity(stack.depth))
    return read_importance(compute_verdicts(losses, baseline, skip_keys(stack.depth), seed=seed, margin=margin))


def _is_importance(row: Score, source: str) -> bool:
    metrics = (SKIPPING,) if source == ABLATION else DECISIONS
    whole = row.layer is not None and row.part is None and row.against is None
    return whole and row.measure == source and row.task == ALL and row.metric in metrics


def _importance(row: Score) -> Importance:
    if row.low is None or row.high is None:
        raise MeasureError(
            f"the effect of skipping layer {row.layer} has no interval, since the text has too few documents: "
            "diagnose on more text, or on shorter windows (--max-length)"
        )
    return Importance(row.value, row.low, row.high)
