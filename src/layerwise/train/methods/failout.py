"""Failout (Yousefpour et al. 2020): whole nodes of layers are lost at once."""

from __future__ import annotations

from layerwise.plan.samplers import Failout, nodes_of
from layerwise.train.methods.method import Options, register
from layerwise.train.recipe import Recipe


# Failout needs to know which layers lie on one node, so LayerShuffle is not compared with it.
@register("failout", ("drop_rate", "drop_sync"), is_compared=False, rank=30)
def failout(options: Options, depth: int) -> Recipe:
    """The layers on four nodes (fewer in a shallow model), each of which fails with probability `drop_rate`."""
    return Recipe("failout", options.settings, Failout(nodes_of(depth, min(4, depth)), options.drop_rate))
