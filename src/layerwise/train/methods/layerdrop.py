"""LayerDrop (Fan et al. 2019): every layer is left out with some probability."""

from __future__ import annotations

from dataclasses import replace

from layerwise.plan.samplers import Drop, Shuffle
from layerwise.train.methods.method import Options, register
from layerwise.train.recipe import Recipe


@register("layerdrop", ("drop_rate", "drop_sync"), rank=20)
def layerdrop(options: Options, depth: int) -> Recipe:
    """Every layer left out with probability `drop_rate`; validated with all layers, in order."""
    return Recipe("layerdrop", options.settings, Drop(options.drop_rate))


@register("layerdrop-scratch", ("drop_rate", "drop_sync"), rank=21)
def layerdrop_scratch(options: Options, depth: int) -> Recipe:
    """LayerDrop from random weights, for `scratch` times as many epochs; its authors say that fine-tuning alone is not
    enough."""
    settings = options.settings
    longer = replace(settings, epochs=settings.epochs * settings.from_scratch_factor)
    return Recipe("layerdrop-scratch", longer, Drop(options.drop_rate), from_scratch=True)


@register("layershuffle-layerdrop", ("drop_rate", "max_shift", "drop_sync"), rank=22)
def layershuffle_layerdrop(options: Options, depth: int) -> Recipe:
    """A random order, and every layer left out of it with probability `drop_rate`; the papers do not try this."""
    shuffle = Shuffle(options.max_shift)
    return Recipe("layershuffle-layerdrop", options.settings, Drop(options.drop_rate, of=shuffle), shuffle)
