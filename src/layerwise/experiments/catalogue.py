"""Every experiment and action by its verb, in the groups in which the command line lists them.

A verb that has kinds takes one as its first word: `train elc` is a kind of `train`, and `save convert` one of `save`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from layerwise.errors import OptionError, near_matches
from layerwise.experiments.experiment import Configuration, Experiment

CATALOGUE: Mapping[str, Mapping[str, str]] = {
    "Plans": {
        "verify": "actions:Verification",
        "time": "timing.config:Timing",
    },
    "Measuring": {
        "sweep": "sweep.config:Sweep",
        "diagnose": "diagnosis.config:Diagnosis",
        "evaluate": "evaluation.config:Evaluation",
        "robustness": "robustness.config:Robustness",
        "robustness merge": "robustness.config:Merging",
    },
    "Changing": {
        "search": "search.config:Search",
        "heal": "healing.config:Healing",
        "save": "saving.config:Saving",
        "save convert": "saving.config:Conversion",
    },
    "Training": {
        "train robust": "robustness.config:RobustTraining",
        "train elc": "pretraining.config:ElcPretraining",
        "train elc-study": "pretraining.config:LayerWeightsStudy",
        "train growth": "growth.config:GrowthTraining",
        "train growth-study": "growth_study.config:GrowthStudy",
        "train schedule": "growth.config:ImportanceSchedule",
    },
    "Serving": {
        "serve": "serving:Serving",
        "serve status": "serving:SwarmStatus",
    },
    "Results": {
        "compare": "actions:Comparison",
    },
}
"""From the heading of a group to its verbs, each with the module and the class of its configuration."""

VERBS: Mapping[str, str] = {verb: path for members in CATALOGUE.values() for verb, path in members.items()}
"""Every verb, kinds included, with its module and class."""


def configuration(verb: str) -> type[Configuration]:
    """The configuration class of a verb. Raises `OptionError` for a verb that there is not."""
    if verb not in VERBS:
        raise OptionError(f"there is no experiment called {verb[:60]!r}; {near_matches(verb, VERBS)}")
    module, _, name = VERBS[verb].partition(":")
    kind: type[Configuration] = getattr(import_module(f"layerwise.experiments.{module}"), name)
    return kind


def experiment(verb: str) -> type[Experiment]:
    """The configuration class of an experiment. Raises `OptionError` for any other verb."""
    kind = configuration(verb)
    if not issubclass(kind, Experiment):
        raise OptionError(f"{verb} is no experiment: it keeps no run; write layerwise {verb} --help")
    return kind
