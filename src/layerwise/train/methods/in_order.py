"""Training in the order of the layers: what every other method is compared with."""

from __future__ import annotations

from dataclasses import replace

from layerwise.train.methods.method import Options, register
from layerwise.train.recipe import Recipe


@register("baseline", rank=1)
def baseline(options: Options, depth: int) -> Recipe:
    """In order, for one epoch: the model as it was, refined as little as the LayerShuffle paper refines it."""
    settings = options.settings
    return Recipe("baseline", replace(settings, epochs=min(1.0, settings.epochs), evals=1))


@register("sequential", rank=2)
def sequential(options: Options, depth: int) -> Recipe:
    """In order, for all epochs: equal in data and in steps to every other method."""
    return Recipe("sequential", options.settings)
