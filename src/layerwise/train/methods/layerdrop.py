"""Layers lost while a model trains: each by itself, or all that one node holds.

layerdrop    Fan et al. 2019: every layer is left out with some probability
failout      Yousefpour et al. 2020: whole nodes of layers are lost at once
"""

from __future__ import annotations

from dataclasses import replace

from layerwise.plan.samplers import Drop, Failout, Shuffle, node_layout
from layerwise.train.methods.method import Options
from layerwise.train.recipe import Recipe


def layerdrop(options: Options, depth: int) -> Recipe:
    """Every layer left out with probability `drop_rate`; validated with all layers, in order."""
    return Recipe("layerdrop", options.settings, Drop(options.drop_rate))


def layerdrop_scratch(options: Options, depth: int) -> Recipe:
    """LayerDrop from random weights, for `scratch` times as many epochs; its authors say that fine-tuning alone is not
    enough."""
    settings = options.settings
    longer = replace(settings, epochs=settings.epochs * settings.from_scratch_factor)
    return Recipe("layerdrop-scratch", longer, Drop(options.drop_rate), from_scratch=True)


def layershuffle_layerdrop(options: Options, depth: int) -> Recipe:
    """A random order, and every layer left out of it with probability `drop_rate`; the papers do not try this."""
    shuffle = Shuffle(options.max_shift)
    return Recipe("layershuffle-layerdrop", options.settings, Drop(options.drop_rate, of=shuffle), shuffle)


def failout(options: Options, depth: int) -> Recipe:
    return Recipe("failout", options.settings, Failout(node_layout(depth, min(4, depth)), options.drop_rate))
