"""Search: the plan of a given price that loses least, with proof on text that chose nothing. It is a verb, too:

    result = layerwise.search(stack, corpus, layerwise.Budget(layers=24))
    result.best, result.front, result.confirmed

budget, prices           what a plan may cost: layers, milliseconds, bytes; the front of loss and price
moves                    from a plan to the plans next to it
evaluator, cost          all candidates of a round as one graph, and what that costs, known beforehand
rungs                    a round: candidates leave on growing text, with a shared error rate
greedy, evolve           the searches; one_shot has the sets that a single score chooses
confirm                  what was reached, measured once on text that chose nothing

Calling the package performs the verb of `layerwise.experiments.verbs`, which is resolved when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """The package, which can be called: `layerwise.search(stack, corpus, Budget(layers=24))`."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return import_module("layerwise.experiments.verbs").search(*arguments, **options)


# A module may be given a class of its own (Python's data model, "Customizing module attribute access").
sys.modules[__name__].__class__ = _Verb
