"""Methods of training by name: each module of this folder registers its own, and none is listed anywhere else.

    layershuffle.py    a uniform permutation for every batch, alone or with layers that know or predict their position
    layerdrop.py       every layer left out with some probability
    ...

`method.Method` says what a registration holds.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

from layerwise.errors import TrainError, near_matches
from layerwise.plan.samplers import Drop, Failout, SeededSampler, layer_subset
from layerwise.results.training_record import RETRAINED, refined_at
from layerwise.train.methods.method import REGISTERED, Method, Options
from layerwise.train.recipe import Recipe, retrained
from layerwise.train.variant import added_by

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

METHODS: Mapping[str, Method] = dict(sorted(REGISTERED.items(), key=lambda item: item[1].rank))
"""Every method that the command line offers, by name."""

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
        made = retrained(options.settings, layer_subset(depth, reduced, "even", random.Random(0)))
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
