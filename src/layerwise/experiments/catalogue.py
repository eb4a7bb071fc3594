"""Every experiment and action by its verb, in the groups in which the command line lists them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from layerwise.errors import OptionError, near_matches
from layerwise.experiments.experiment import Configuration, Experiment

CATALOGUE: Mapping[str, Mapping[str, str]] = {
    "Plans": {
        "verify": "verification:Verification",
        "speculate": "speculation.config:SpeculativeDecoding",
        "time": "timing.config:Timing",
    },
    "Measuring": {
        "sweep": "sweep.config:Sweep",
        "frontier": "frontier.config:LatencyFrontier",
        "diagnose": "diagnosis.config:Diagnosis",
        "evaluate": "evaluation.config:Evaluation",
        "robustness": "robustness.config:Robustness",
        "layer-weights": "layer_weights.config:LayerWeightAnalysis",
    },
    "Changing": {
        "search": "search.config:Search",
        "route": "routing.config:Routing",
        "heal": "healing.config:Healing",
        "save": "saving.config:Saving",
        "merge": "merging.config:Merging",
        "convert": "conversion:Conversion",
    },
    "Training": {
        "train robust": "robustness.config:RobustTraining",
        "train elc": "pretraining.config:ElcPretraining",
        "train growth": "growth.config:GrowthTraining",
        "schedule": "diagnosis.schedule:ImportanceSchedule",
    },
    "Comparing": {
        "compare": "comparison.config:Comparison",
        "study layer-weights": "layer_weights_study.config:LayerWeightsStudy",
        "study growth": "growth_study.config:GrowthStudy",
    },
    "Serving": {
        "swarm serve": "serving.config:Serving",
        "swarm status": "serving.status:SwarmStatus",
        "swarm rehearse": "rehearsal.config:Rehearsal",
        "swarm simulate": "rehearsal.simulation:Simulation",
    },
}
"""From the heading of a group to its verbs, each with the module and the class of its configuration."""


def configuration(verb: str) -> type[Configuration]:
    """The configuration class of a verb. Raises `OptionError` for a verb that there is not."""
    import_paths = {name: import_path for verbs in CATALOGUE.values() for name, import_path in verbs.items()}
    if verb not in import_paths:
        raise OptionError(f"there is no experiment called {verb[:60]!r}; {near_matches(verb, import_paths)}")
    module, _, name = import_paths[verb].partition(":")
    kind: type[Configuration] = getattr(import_module(f"layerwise.experiments.{module}"), name)
    return kind


def experiment(verb: str) -> type[Experiment]:
    """The configuration class of an experiment. Raises `OptionError` for any other verb."""
    kind = configuration(verb)
    if not issubclass(kind, Experiment):
        raise OptionError(f"{verb} is no experiment: it keeps no run; write layerwise {verb} --help")
    return kind
