"""Find a verb by its name on the command line."""

from __future__ import annotations

from importlib import import_module

from layerwise.catalogue import VERBS
from layerwise.errors import OptionError, near_matches
from layerwise.runner.verb import Verb


def load_verb(name: str) -> Verb:
    """Return a verb, importing the module of its function.

    Raises:
        OptionError: If there is no verb of that name.
    """
    if name not in VERBS:
        raise OptionError(f"there is no experiment called {name[:60]!r}; {near_matches(name, VERBS)}")
    module, _, function = VERBS[name].partition(":")
    loaded: Verb = getattr(import_module(f"layerwise.studies.{module}"), function).__verb__
    return loaded
