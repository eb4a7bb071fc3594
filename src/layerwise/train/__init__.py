"""Trainings: recipes, the Trainer that runs plans, and, from `layerwise.train`, one function for each way of training.

    layerwise.train.robust("demo-vit", methods=("layershuffle", "layerdrop"))
    layerwise.train.layershuffle("demo-vit")
    layerwise.train.elc("texts/", size="small", seeds=3)
    layerwise.train.growth("MODEL", "texts/", schedules=["stacking"])

The functions are the verbs of the command line; they are resolved when they are first used.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

_ROBUST = "layerwise.studies.robustness.training_verb"
_FUNCTIONS = {
    "elc": "layerwise.studies.train_elc.verb",
    "growth": "layerwise.studies.train_growth.verb",
    "schedule": "layerwise.studies.train_growth.importance",
}


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return getattr(import_module(_FUNCTIONS[name]), name)
    if name == "robust":
        return import_module(_ROBUST).train_robust
    if not name.startswith("_") and name.replace("_", "-") in import_module("layerwise.train.methods").METHODS:
        return partial(import_module(_ROBUST).train_robust, methods=name.replace("_", "-"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
