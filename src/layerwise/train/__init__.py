"""Training: recipes, a Trainer that runs plans, and one function per training method.

    layerwise.train.robust("demo-vit", methods=("layershuffle", "layerdrop"))
    layerwise.train.layershuffle("demo-vit")
    layerwise.train.elc("texts/", size="small", seeds=3)
    layerwise.train.growth("MODEL", "texts/", schedules=["stacking"])

These are the functions behind `layerwise train ...`, imported on first use.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        verbs = import_module("layerwise.catalogue").VERBS
        if f"train {name}" in verbs:
            return verbs[f"train {name}"].function
        if name.replace("_", "-") in import_module("layerwise.train.methods").METHODS:
            return partial(verbs["train robust"].function, methods=name.replace("_", "-"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
