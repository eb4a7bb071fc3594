"""Find the configuration class of a verb."""

from __future__ import annotations

from importlib import import_module

from layerwise.catalogue import VERBS
from layerwise.errors import OptionError, near_matches
from layerwise.runner.experiment import Configuration, Experiment
from layerwise.runner.verb import Verb


def configuration(verb: str) -> type[Configuration]:
    """The configuration class of a verb. Raises `OptionError` for a verb that there is not."""
    if verb not in VERBS:
        raise OptionError(f"there is no experiment called {verb[:60]!r}; {near_matches(verb, VERBS)}")
    module, _, name = VERBS[verb].partition(":")
    loaded = getattr(import_module(f"layerwise.studies.{module}"), name)
    kind: type[Configuration] = getattr(loaded, "__verb__", loaded)
    return kind


def experiment(verb: str) -> type[Experiment]:
    """The configuration class of an experiment. Raises `OptionError` for any other verb."""
    kind = configuration(verb)
    if isinstance(kind, Verb) or not issubclass(kind, Experiment):
        raise OptionError(f"{verb} is no experiment: it keeps no run; write layerwise {verb} --help")
    return kind
