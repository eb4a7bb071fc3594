"""Search for the plan that fits a budget and increases the loss least, and confirm it on held-out text.

The package is callable::

    result = layerwise.search(stack, corpus, layerwise.Budget(layers=24))
    result.best, result.front, result.confirmed
"""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import Signature, signature
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._function(*arguments, **options)

    @property
    def _function(self) -> Any:
        return import_module("layerwise.catalogue").search

    @property
    def __signature__(self) -> Signature:
        return signature(self._function)

    @property
    def __doc__(self) -> str:  # type: ignore[override] # help() shows the options of the verb
        return f"search{signature(self._function)}\n\n{self._function.__doc__}"


# A module is callable if its class is (Python's data model, "Customizing module attribute access").
sys.modules[__name__].__class__ = _Verb
