"""The work of a diagnosis: its variants of the model, counted part by part, at the price of a few of them.

Ablation and manipulation are priced by some of their own interventions, since what they do to weights takes as long as
layers do in a small model. All other variants are priced by a layer and a head, and run all layers. A fine-tuning runs
forward and backward, thrice a pass, from the layer on that was damaged. Parts that compare weights alone are not
counted: they take seconds, but for models of billions of weights.

The counts are those of a model that allows everything; what a model does not allow is left out, and costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import mean

from layerwise.experiments.diagnosis.config import Diagnosis
from layerwise.experiments.diagnosis.context import Texts
from layerwise.experiments.engines.work import Work, sampled
from layerwise.experiments.sweep.works import is_short_due, priced_work
from layerwise.measure.interventions import ablation, perturbation_curves
from layerwise.measure.interventions.intervention import Intervention, intervention_losses
from layerwise.measure.interventions.order import members as reordered
from layerwise.measure.interventions.perturbation_curves import ALPHAS, SIZES
from layerwise.measure.interventions.perturbations import STRATEGIES
from layerwise.measure.interventions.pruning import RANDOM_SETS
from layerwise.measure.interventions.sweep import CostEstimate, CostMeter
from layerwise.measure.interventions.sweep_pieces import head_in_layers
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.recovery.finetuning import RecoveryRecipe
from layerwise.measure.recovery.recovery import DEFAULT_LAYERS, DEFAULT_TREATMENTS, TREATMENTS
from layerwise.measure.weights.predicted_weight_loss import joint_sets, neighbour_sets
from layerwise.plan import Plan
from layerwise.plan.sublayer import SUBLAYERS as BRANCHES
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

    clean: list[float] = []
    spent: list[tuple[float, float]] = []

    def once(turn: int) -> float:
        if not turn:
            clean[:] = [min(taken([]), taken([]))]  # the first one warms up
            return 0.0
        layer = spread(turn, stack.depth)
        kinds = _by_kind(of_layer(layer))
        chosen = kinds[turn % len(kinds)]
        spent.append((max(0.0, taken(chosen) - clean[0]), len(chosen) * price[layer]))
        seconds, measured = map(sum, zip(*spent, strict=True))
        return clean[0] + number * mean(price) * seconds / measured

    return Work(name, sampled(once, "x interventions of a kind on a layer"))


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


INTERVENTIONS = 4
"""On a whole layer that may be any: skipped, its mean, a neighbour's copy, random weights."""

RECOVERY_SEEDS = 3


def describe_cost(config: Diagnosis, depth: int, tokens: int) -> str:
    """The cost in a sentence, for a model of `depth` layers and a text of `tokens` scored tokens."""
    counts = variants(config, depth, tokens)
    clauses = [f"{part} {count:,} on {scored:,} tokens" for part, (count, scored) in counts.items()]
    if "recovery" in config.parts:
        clauses.append(f"recovery {fine_tunings(config, depth):,} fine-tunings of {config.recovery_steps:,} steps")
    total = sum(count for count, _ in counts.values())
    return f"cost: about {total:,} variants of the model" + (f" ({'; '.join(clauses)})" if clauses else "")


def variants(config: Diagnosis, depth: int, tokens: int) -> dict[str, tuple[int, int]]:
    """By part, how many variants of the model it runs, and on how many scored tokens each.

    >>> variants(Diagnosis(model="demo", parts=("ablation", "manipulation")), 6, 5_000)
    {'ablation': (52, 5000), 'manipulation': (300, 1000)}
    """
    ablated = min(tokens, config.budget or tokens)
    short = min(tokens, config.curve_tokens)
    counts = {
        "predictability": (2 * (depth - 2 + len(joint_sets(depth)) + len(neighbour_sets(depth))), short),
        "ablation": (depth * (INTERVENTIONS + 2 * len(BRANCHES)) + depth - 2, ablated),
        "racing": (depth if "ablation" not in config.parts else 0, ablated),
        "order": (len(reordered(depth)), tokens),
        "manipulation": (
            depth * (len(STRATEGIES) * len(SIZES) + (1 + len(BRANCHES)) * len(ALPHAS)) + 2 * len(STRATEGIES),
            short,
        ),
        "pruning": (depth // 2 * RANDOM_SETS, short),
    }
    return {part: count for part, count in counts.items() if part in config.parts and count[0]}


def fine_tunings(config: Diagnosis, depth: int) -> int:
    """How many models the recovery trains for a few steps: damaged ones, and an undamaged twin for each of a kind."""
    layers = depth if config.all_layers else len(set(config.recovery_layers)) or min(depth, DEFAULT_LAYERS)
    treatments = TREATMENTS if config.all_layers else DEFAULT_TREATMENTS
    scopes = {treatment.partition("/")[2] for treatment in treatments}
    return RECOVERY_SEEDS * layers * (len(treatments) + len(scopes))
