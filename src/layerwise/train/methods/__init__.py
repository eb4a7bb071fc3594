"""Methods of training by name; `method.Method` says what each is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from layerwise.errors import TrainError, near_matches
from layerwise.plan.samplers import Drop, Failout, SeededSampler, layer_subset
from layerwise.results.training_record import RETRAINED, refined_at
from layerwise.train.methods.layer_weights import wiring_identity, wiring_softmax
from layerwise.train.methods.layerdrop import failout, layerdrop, layerdrop_scratch, layershuffle_layerdrop
from layerwise.train.methods.layershuffle import layershuffle, layershuffle_position, layershuffle_predict
from layerwise.train.methods.method import Method, Options, baseline, sequential
from layerwise.train.recipe import Recipe, retrained
from layerwise.train.variant import added_by

METHODS: Mapping[str, Method] = {
    "baseline": Method(baseline),
    "sequential": Method(sequential),
    "layershuffle": Method(layershuffle, ("max_shift", "drop_sync")),
    "layershuffle-position": Method(
        layershuffle_position, ("max_shift", "drop_sync", "position_table", "position_dropout")
    ),
    "layershuffle-predict": Method(
        layershuffle_predict, ("max_shift", "drop_sync", "prediction_loss", "prediction_token")
    ),
    "layerdrop": Method(layerdrop, ("drop_rate", "drop_sync")),
    "layerdrop-scratch": Method(layerdrop_scratch, ("drop_rate", "drop_sync")),
    "layershuffle-layerdrop": Method(layershuffle_layerdrop, ("drop_rate", "max_shift", "drop_sync")),
    # Failout needs to know which layers are on one node, and layer weights change what layers read, and not which
    # orders they work in.
    "failout": Method(failout, ("drop_rate", "drop_sync"), is_compared=False),
    "wiring-softmax": Method(wiring_softmax, is_compared=False),
    "wiring-identity": Method(wiring_identity, is_compared=False),
}
"""Every method that the command line offers, by name, in the order in which they are listed."""

COMPARED = tuple(name for name, method in METHODS.items() if method.is_compared)
"""The methods that LayerShuffle is compared with."""

READ_BY: Mapping[str, tuple[str, ...]] = {
    option: tuple(name for name, method in METHODS.items() if option in method.reads)
    for option in dict.fromkeys(option for method in METHODS.values() for option in method.reads)
}
"""The methods that read an option, by the option's name."""

__all__ = ["COMPARED", "METHODS", "READ_BY", "Method", "Options", "added_by", "recipe", "recipes"]


def recipe(name: str, options: Options, depth: int) -> Recipe:
    """The recipe of a method by its name, or of `retrained-6`: refined with six layers, evenly spread, alone.

    Raises `TrainError` with the near matches for an unknown method, `PlanError` for one that a model of this depth
    cannot be trained by.

    >>> recipe("layershuffle", Options(), depth=12).settings.learning_rate
    0.0001
    """
    reduced = refined_at(name)
    if reduced is None and name not in METHODS:
        raise TrainError(f"there is no training method {name[:40]!r}; {near_matches(name, METHODS)}, {RETRAINED}-K")
    if reduced is not None:
        made = retrained(options.settings, layer_subset(depth, reduced, "even"))
    else:
        made = METHODS[name].recipe(options, depth)
    sampler = made.sampler
    if options.drop_sync == "masked" and isinstance(sampler, Drop | Failout):
        sampler = replace(sampler, preserve=True)
    made = replace(made, sampler=sampler, ranks="per-rank" if options.drop_sync == "per-rank" else "shared")
    SeededSampler(made.sampler, depth, 0).at(0)  # what cannot be drawn is refused now, and not at the first step
    return made


def recipes(names: Iterable[str], options: Options, depth: int) -> tuple[Recipe, ...]:
    """The recipes of several methods for a model of so many layers."""
    return tuple(recipe(name, options, depth) for name in names)
