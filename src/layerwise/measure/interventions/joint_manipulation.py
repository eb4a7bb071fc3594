"""Manipulation of a whole set of layers at once: what was published of the redundant ones.

The founding experiment manipulated all layers that it had found redundant together, in five ways. Here the set is the
largest whose layers cost little when they are skipped one by one (`chosen_size`), and every strategy of
`layerwise.measure.interventions.perturbations` moves all of them by one size: a tenth of the weights' norm, which is
the published scaling by 0.9, and as far as it goes in every layer of the set, as the others were published.

Losses are rows called `joint=<strategy>:<size>`; those of single layers, `12=<strategy>:<size>`, are the manipulation's
own (`layerwise.measure.interventions.perturbation_curves`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from layerwise.measure.contrasts.joint import chosen_size
from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.interventions.joint_replacement import joint_losses
from layerwise.measure.interventions.perturbation_curves import SIZES
from layerwise.measure.interventions.perturbations import STRATEGIES, Perturbations, Strategy
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.weights.prediction import predict_layer
from layerwise.results.rows import Loss
from layerwise.stack import Stack
from layerwise.stack.weights import Weights, layer_weights

SMALL = 0.1
"""Scaling by 0.9 changes the weights by a tenth of their norm."""


def redundant_layers(ranking: Mapping[int, float]) -> tuple[int, ...]:
    """Of `ranking`, layer to what skipping it costs, the largest set that costs little one by one; two at least.

    >>> redundant_layers({0: 3.0, 1: 0.05, 2: 0.06, 3: 0.07, 4: 0.5})
    (1, 2, 3)
    """
    size = chosen_size(ranking, max(2, len(ranking) - 2))
    return tuple(sorted(sorted(ranking, key=ranking.__getitem__)[:size]))


def joint_manipulation(
    stack: Stack, data: EvalData, layers: Sequence[int], *, seed: int = 0, cache: ResultCache | None = None
) -> list[Loss]:
    """The losses of `data` with all of `layers` moved together by each strategy, at a small and at its largest size.

    `seed` draws the noise: with that of `perturbation_curves` a layer is moved as it was by itself. A strategy that
    does not move all of the layers as far as the small size has no losses.
    """
    cache = cache or ResultCache()
    perturbations = Perturbations(stack, seed, predict_layer)
    losses: list[Loss] = []
    for strategy in STRATEGIES:
        there = [size for size in SIZES if all(perturbations.exists(layer, strategy, size) for layer in layers)]
        for size in sorted({SMALL, max(there)} & set(there)) if there else ():
            moved = partial(_moved, stack, perturbations, layers, strategy, size)
            losses += joint_losses(stack, data, joint_key(strategy, size), moved, cache)
    return losses


def joint_key(strategy: str, size: float) -> str:
    """What the losses of a joint manipulation are called.

    >>> joint_key("scale", 0.1)
    'joint=scale:0.1'
    """
    return f"joint={strategy}:{size:g}"


def _moved(
    stack: Stack, perturbations: Perturbations, layers: Sequence[int], strategy: Strategy, size: float
) -> dict[int, Weights]:
    """The weights of every layer after the change, in the type and on the device of its own."""
    moved: dict[int, Weights] = {}
    for layer in layers:
        own = layer_weights(stack, layer)
        changed = perturbations.at(layer, strategy, size)
        moved[layer] = {name: value.to(own[name].dtype).to(own[name].device) for name, value in changed.items()}
    return moved
