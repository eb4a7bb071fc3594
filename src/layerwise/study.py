"""Studies: questions that take many trainings to answer, with their controls, one function for each.

    layerwise.study.layer_weights("texts/", seeds=5)
    layerwise.study.growth("MODEL", "texts/", steps=5000)

The functions are those of `layerwise.experiments.verbs`; they are resolved when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_VERBS = {"growth": "study_growth", "layer_weights": "study_layer_weights"}
"""The functions of `layerwise.experiments.verbs`, by what they are called here."""


def __getattr__(name: str) -> Any:
    if name in _VERBS:
        return getattr(import_module("layerwise.experiments.verbs"), _VERBS[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
