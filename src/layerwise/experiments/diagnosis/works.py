"""The work of a diagnosis: its variants of the model, counted part by part, at the price of a layer and of a head.

An intervention at a layer runs that layer and those behind it, which over all layers is half of them; other variants
run all of them. A fine-tuning runs forward and backward, thrice a pass, from the layer on that was damaged. Parts that
compare weights alone are not counted: they take seconds, but for models of billions of weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from layerwise.experiments.diagnosis.config import Diagnosis
from layerwise.experiments.diagnosis.cost import fine_tunings, variants
from layerwise.experiments.forecast.work import Work
from layerwise.experiments.sweep.works import priced_work
from layerwise.measure.interventions.order import members as reordered
from layerwise.measure.interventions.sweep import CostEstimate
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.recovery.finetuning import RecoveryRecipe
from layerwise.plan import Plan
from layerwise.stack import Stack

_FROM_A_LAYER_ON = ("ablation", "manipulation")

_BACKWARD = 3
"""Passes that a pass forward and backward is worth."""

_PROXY_PASSES = 2
"""Passes forward and backward over the text that the proxies take: gradients, and those of gates."""


def diagnosis_works(
    config: Diagnosis, stack: Stack, text: EvalData, finished: Collection[str], stored: int
) -> Iterator[Work]:
    """What is left where the parts `finished` are complete and `stored` losses are known; none if that is short."""
    depth = stack.depth
    counted = variants(config, depth, text.tokens)
    padded = sum(batch.size for batch in text.batches) / text.tokens
    left = _share_left(counted, finished, stored, len(text.windows) / text.tokens)
    layers = heads = 0.0
    for part, (count, scored) in counted.items():
        if part not in finished:
            mean = (depth + 1) / 2 if part in _FROM_A_LAYER_ON else depth
            layers += left * count * mean * scored
            heads += left * count * scored
    tuned = 0.0
    if "recovery" in config.parts and "recovery" not in finished:
        recipe = RecoveryRecipe(steps=config.recovery_steps)
        tokens = _BACKWARD * recipe.steps * recipe.batch_tokens + len(recipe.evaluations) * recipe.evaluation_tokens
        tuned += fine_tunings(config, depth) * tokens / 2
    if "proxies" in config.parts and "proxies" not in finished:
        tuned += _BACKWARD * _PROXY_PASSES * text.tokens
    due = CostEstimate(0, 0, 1, round(padded * (layers + tuned * depth)), round(padded * (heads + tuned)))
    plans = [Plan.identity(depth), *(member.plan for member in reordered(depth))]
    rows = sum(count * scored for count, scored in counted.values()) * len(text.windows) / text.tokens
    yield from priced_work("variants", stack, plans, text, due, round(rows))


def _share_left(
    counted: dict[str, tuple[int, int]], finished: Collection[str], stored: int, windows_a_token: float
) -> float:
    """The share of the losses of the unfinished parts that is not stored, where those of the others are."""
    rows = {part: count * scored * windows_a_token for part, (count, scored) in counted.items()}
    unfinished = sum(count for part, count in rows.items() if part not in finished)
    begun = max(0.0, stored - (sum(rows.values()) - unfinished))
    return max(0.0, 1 - begun / unfinished) if unfinished else 0.0
