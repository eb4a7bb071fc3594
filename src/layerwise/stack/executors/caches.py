"""Prevent a plan from reading a KV cache that another plan wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any
from weakref import WeakSet

from transformers import Cache

from layerwise.errors import ModelError
from layerwise.plan import Plan

# Attribute of a cache with the plan that wrote it.
_WRITTEN_BY = "_layerwise_plan"

_ADVICE = "Start from an empty cache, or enter the plan that wrote this one."


class PlanCaches:
    """The KV caches that were written under one plan. Using one of them under another plan raises `ModelError`."""

    def __init__(self, plan: Plan, depth: int) -> None:
        self._plan = str(plan)
        self._slots, self._depth = len(plan.steps()), depth
        self._is_identity = plan == Plan.identity(depth)
        self._written: WeakSet[Cache] = WeakSet()

    @contextmanager
    def checked(self, arguments: Iterable[Any]) -> Iterator[None]:
        caches = list(_find_caches(arguments))
        for cache in caches:
            self._admit(cache)
        try:
            yield
        except IndexError as error:
            sizes = [len(cache.layers) for cache in caches if 0 < len(cache.layers) < self._slots]
            if not sizes:
                raise
            raise ModelError(
                f"a cache for the plan {self._plan} must have {self._slots} layers, got {sizes[0]}; create it inside "
                "`with stack.under(...)`, from the model's configuration there"
            ) from error

    def note(self, values: Iterable[Any]) -> None:
        for cache in () if self._is_identity else _find_caches(values):
            vars(cache)[_WRITTEN_BY] = self._plan
            self._written.add(cache)

    def close(self) -> None:
        for cache in self._written:
            vars(cache).update({name: MethodType(_refusing(name), cache) for name in _methods_of_layers(cache)})

    def _admit(self, cache: Cache) -> None:
        writer = vars(cache).get(_WRITTEN_BY)
        is_of_original = len(cache.layers) == self._depth != self._slots
        if writer != self._plan and (writer is not None or is_of_original) and _is_filled(cache):
            writer = writer or "the original model"
            raise ModelError(f"a cache written by {writer} was passed to the plan {self._plan}. {_ADVICE}")
        if writer is not None:
            _open(cache)


def _find_caches(values: Iterable[Any]) -> Iterator[Cache]:
    for value in values:
        if isinstance(value, Cache):
            if "layers" in vars(value):
                yield value
            yield from _find_caches(vars(value).values())  # a decoder's cache has two


def _is_filled(cache: Cache) -> bool:
    return any(
        (hasattr(layer, "get_seq_length") and int(layer.get_seq_length()) > 0)
        or any(getattr(layer, "has_previous_state", {}).values())
        for layer in cache.layers
    )


def _methods_of_layers(cache: Cache) -> list[str]:
    # Linear attention changes its states in place.
    return [name for name in dir(type(cache)) if name.startswith("update") or re.fullmatch(r"get_\w+_state", name)]


def _open(cache: Cache) -> None:
    for name in _methods_of_layers(cache):
        vars(cache).pop(name, None)


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(self: Cache, *args: Any, **kwargs: Any) -> Any:
        if _is_filled(self):
            writer = vars(self)[_WRITTEN_BY]
            raise ModelError(f"a cache written by {writer} was passed to a model that does not run it. {_ADVICE}")
        _open(self)
        return getattr(self, name)(*args, **kwargs)

    refuse.__name__ = name  # pickle looks methods up by name
    return refuse
