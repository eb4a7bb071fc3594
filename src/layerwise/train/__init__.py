"""Trainings: recipes, the Trainer that runs plans, and, from `layerwise.train`, one function for each way of training.

    layerwise.train.robust("demo-vit", methods=("layershuffle", "layerdrop"))
    layerwise.train.layershuffle("demo-vit")
    layerwise.train.elc("texts/", size="small", seeds=3)
    layerwise.train.growth("MODEL", "texts/", schedule="stacking")

The functions are those of `layerwise.runner.verbs`; they are resolved when they are first used.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

_VERBS = ("growth", "growth_study")
_ROBUST = "layerwise.studies.robustness.training_verb"
_FUNCTIONS = {
    "elc": "layerwise.studies.train_elc.verb",
}


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return getattr(import_module(_FUNCTIONS[name]), name)
    verbs = "layerwise.runner.verbs"
    if name in _VERBS:
        return getattr(import_module(verbs), f"train_{name}")
    if name == "robust":
        return import_module(_ROBUST).train_robust
    if not name.startswith("_") and name.replace("_", "-") in import_module("layerwise.train.methods").METHODS:
        return partial(import_module(_ROBUST).train_robust, methods=name.replace("_", "-"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
