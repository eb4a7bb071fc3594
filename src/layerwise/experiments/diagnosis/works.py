"""The work of a diagnosis: its variants of the model, counted part by part, at the price of a few of them.

Ablation and manipulation are priced by some of their own interventions, since what they do to weights takes as long as
layers do in a small model. All other variants are priced by a layer and a head, and run all layers. A fine-tuning runs
forward and backward, thrice a pass, from the layer on that was damaged. Parts that compare weights alone are not
counted: they take seconds, but for models of billions of weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count, groupby
from statistics import mean

from layerwise.experiments.diagnosis.config import Diagnosis
from layerwise.experiments.diagnosis.cost import fine_tunings, variants
from layerwise.experiments.diagnosis.elsewhere import Texts
from layerwise.experiments.engines.work import Work, WorkCost, is_enough
from layerwise.experiments.sweep.works import is_short_due, priced_work
from layerwise.measure.interventions import ablation, perturbation_curves
from layerwise.measure.interventions.intervention import Intervention, intervention_losses
from layerwise.measure.interventions.order import members as reordered
from layerwise.measure.interventions.sweep import CostEstimate, CostMeter
from layerwise.measure.interventions.sweep_pieces import head_in_layers
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.recovery.finetuning import RecoveryRecipe
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.train.trial_steps import spread

_BACKWARD = 3
"""Passes that a pass forward and backward is worth."""

_PROXY_PASSES = 2
"""Passes forward and backward over the text that the proxies take: gradients, and those of gates."""

_OfLayer = Callable[[int], Sequence[Intervention]]
"""The interventions of one layer."""


def diagnosis_works(
    config: Diagnosis, stack: Stack, texts: Texts, finished: Collection[str], stored: int
) -> Iterator[Work]:
    """What is left where the parts `finished` are complete and `stored` losses are known; none if that is short."""
    text, depth = texts.whole, stack.depth
    counted = variants(config, depth, text.tokens)
    left = _share_left(counted, finished, stored, len(text.windows) / text.tokens)
    due = {part: (left * number, scored) for part, (number, scored) in counted.items() if part not in finished}
    rows = round(sum(number * scored for number, scored in counted.values()) * len(text.windows) / text.tokens)
    sampled: Mapping[str, tuple[_OfLayer, EvalData]] = {
        "ablation": (lambda layer: ablation.interventions(stack, config.seed, layers=[layer]), texts.ablation),
        "manipulation": (
            lambda layer: perturbation_curves.interventions(stack, seed=config.seed, layers=[layer]),
            perturbation_curves.tight(texts.curves),
        ),
    }
    plans = [Plan.identity(depth), *(member.plan for member in reordered(depth))]
    whole = _in_layers(config, stack, text, due, finished)
    if is_short_due(stack, whole, text):
        return
    for part, (of_layer, data) in sampled.items():
        if part in due:
            yield _interventions_work(part, stack, of_layer, data, due.pop(part)[0])
    yield from priced_work(
        "variants", stack, plans, text, _in_layers(config, stack, text, due, finished), rows, CostMeter()
    )


def _in_layers(
    config: Diagnosis, stack: Stack, text: EvalData, due: Mapping[str, tuple[float, int]], finished: Collection[str]
) -> CostEstimate:
    """The layer evaluations and heads, times tokens, of the parts that are `due`, and of fine-tunings and proxies."""
    padded = sum(batch.size for batch in text.batches) / text.tokens
    heads = sum(number * scored for number, scored in due.values())
    tuned = 0.0
    if "recovery" in config.parts and "recovery" not in finished:
        recipe = RecoveryRecipe(steps=config.recovery_steps)
        tokens = _BACKWARD * recipe.steps * recipe.batch_tokens + len(recipe.evaluations) * recipe.evaluation_tokens
        tuned += fine_tunings(config, stack.depth) * tokens / 2
    if "proxies" in config.parts and "proxies" not in finished:
        tuned += _BACKWARD * _PROXY_PASSES * text.tokens
    return CostEstimate(0, 0, 1, round(padded * stack.depth * (heads + tuned)), round(padded * (heads + tuned)))


def _interventions_work(name: str, stack: Stack, of_layer: _OfLayer, data: EvalData, number: float) -> Work:
    """`number` interventions on the text: the clean pass, and each at the price of some, of layers all over the model.

    What is sampled are all of a kind on one layer: those share the decompositions of its weights. One at a layer runs
    that layer, those behind it and the head, and is priced as so much.
    """
    head = head_in_layers(stack)
    price = [stack.depth - layer + head for layer in range(stack.depth)]

    def taken(chosen: Sequence[Intervention]) -> float:
        begun = time.perf_counter()
        intervention_losses(stack, chosen, data)
        return time.perf_counter() - begun

    def measure(seconds: float) -> WorkCost:
        begun = time.perf_counter()
        clean = taken([])  # the first one warms up
        clean = min(clean, taken([]))
        spent = measured = 0.0
        for turn in count(1):
            layer = spread(turn, stack.depth)
            kinds = _by_kind(of_layer(layer))
            chosen = kinds[turn % len(kinds)]
            spent += max(0.0, taken(chosen) - clean)
            measured += len(chosen) * price[layer]
            estimate = clean + number * mean(price) * spent / measured
            if is_enough(begun, seconds, estimate):
                return WorkCost(estimate, measured_on=f"{turn} x interventions of a kind on a layer")
        raise AssertionError("some measurement is enough")

    return Work(name, measure)


def _by_kind(interventions: Sequence[Intervention]) -> list[list[Intervention]]:
    """The interventions in groups of one kind each, that are called alike but for a size."""

    def kind(each: Intervention) -> str:
        return each.name.partition(":")[0]

    return [list(group) for _, group in groupby(sorted(interventions, key=kind), key=kind)]


def _share_left(
    counted: dict[str, tuple[int, int]], finished: Collection[str], stored: int, windows_a_token: float
) -> float:
    """The share of the losses of the unfinished parts that is not stored, where those of the others are."""
    rows = {part: count * scored * windows_a_token for part, (count, scored) in counted.items()}
    unfinished = sum(count for part, count in rows.items() if part not in finished)
    begun = max(0.0, stored - (sum(rows.values()) - unfinished))
    return max(0.0, 1 - begun / unfinished) if unfinished else 0.0
