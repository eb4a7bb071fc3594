"""A model's configuration under a plan: per-layer lists in visit order, and the plan's layer count.

The configuration keeps its own values for saving; meanwhile its class answers in visit order.
"""

from __future__ import annotations

import copy
import copyreg
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any, cast

from torch import nn

from layerwise.plan.config_order import computed_per_layer, in_visit_order

Values = tuple[tuple[Any, dict[str, Any]], ...]
"""Configurations, and modules that have the settings of one, each with what some of its attributes read as."""

# What each holder answers at the moment, by its identity and the class that answers.
_ANSWERS: dict[tuple[int, type], dict[str, Any]] = {}

_COPYING = threading.local()

# The property under which a configuration gives that of every layer.
_CONFIGURATIONS = "per_layer_config"

# Set in the flags of classes that were made by a class statement (CPython's Py_TPFLAGS_HEAPTYPE).
_HEAP_TYPE = 1 << 9


@contextmanager
def visit_order(
    model: nn.Module, path: str, order: Sequence[int], depth: int, settings: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Within the context, every configuration that describes the blocks at `path` reads in visit order.

    `order` is the layer of each visit, `depth` the model's layer count. `settings` come from the configuration of the
    blocks' owner. Changes inside of values in visit order are lost on exit.
    """
    with reading(visit_order_values(model, path, order, depth, settings)):
        yield


def visit_order_values(
    model: nn.Module, path: str, order: Sequence[int], depth: int, settings: Mapping[str, Any] | None = None
) -> Values:
    """What each configuration would read as in `visit_order`, for those who enter and leave it often."""
    holders = _holders(model, path)
    # All are read before any answers otherwise: a computed list may have the length of a count that changes.
    read = [
        {**in_visit_order(vars(holder), path, order, depth), **_reordered_properties(holder, path, order, depth)}
        for holder in holders
    ]
    owner = model.get_submodule(path.rpartition(".")[0])
    config_owner = getattr(owner, "config", None) or owner
    for holder, values in zip(holders, read, strict=True):
        if holder is config_owner:
            values.update({name: value for name, value in (settings or {}).items() if name in vars(holder)})
    # Also where all values are the holder's own: a compiled block is compiled for the class that it reads.
    return tuple((holder, values) for holder, values in zip(holders, read, strict=True) if values)


@contextmanager
def reading(values: Values) -> Iterator[None]:
    """Within the context every holder answers with its values."""
    with ExitStack() as answers:
        for holder, own in values:
            answers.enter_context(_answering(holder, dict(own)))
        yield


def configuration_in_order(model: Any, path: str, order: Sequence[int], depth: int) -> Any:
    """A copy of the model's configuration in visit order, as a model of its own would have it."""
    with visit_order(model, path, order, depth), _copied_as_read():
        config = copy.deepcopy(model.config)
    text = config.get_text_config()
    if getattr(text, "is_heterogeneous", False):
        own = {int(layer): settings for layer, settings in text.to_dict()[_CONFIGURATIONS].items()}
        text.per_layer_config = {slot: own[layer] for slot, layer in enumerate(order) if layer in own}
    return config


@contextmanager
def _answering(holder: Any, values: dict[str, Any]) -> Iterator[None]:
    own = type(holder)
    if not own.__flags__ & _HEAP_TYPE:
        # The class of a `types.SimpleNamespace` cannot be exchanged: it holds other values for the while.
        before = {name: vars(holder)[name] for name in values}
        vars(holder).update(values)
        try:
            yield
        finally:
            vars(holder).update(before)
        return
    kind = _view(cast(Hashable, own), frozenset(values))
    _ANSWERS[id(holder), kind] = values
    holder.__class__ = kind
    try:
        yield
    finally:
        holder.__class__ = own
        del _ANSWERS[id(holder), kind]


@contextmanager
def _copied_as_read() -> Iterator[None]:
    before, _COPYING.as_read = getattr(_COPYING, "as_read", False), True
    try:
        yield
    finally:
        _COPYING.as_read = before


@cache
def _view(kind: Any, names: frozenset[str]) -> Any:
    def answers(self: Any) -> dict[str, Any]:
        return _ANSWERS.get((id(self), view), {})

    def read(name: str, self: Any) -> Any:
        for values in (answers(self), vars(self)):
            if name in values:
                return values[name]
        return getattr(super(view, self), name)

    def write(name: str, self: Any, value: Any) -> None:
        now = answers(self)
        (now if name in now else vars(self))[name] = value

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        now = answers(self) if getattr(_COPYING, "as_read", False) else {}
        computed = {name: _constant(value) for name, value in now.items() if name not in {*vars(self), _CONFIGURATIONS}}
        made = object.__new__(_subclass(kind, computed) if computed else kind)
        memo[id(self)] = made
        vars(made).update(copy.deepcopy({**vars(self), **{n: v for n, v in now.items() if n in vars(self)}}, memo))
        return made

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        return copyreg._reconstructor, (kind, object, None), dict(vars(self))  # type: ignore[attr-defined]

    def get_text_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        # For one side of an encoder-decoder this is a copy, from which that side's cache is built.
        with _copied_as_read():
            return super(view, self).get_text_config(*args, **kwargs)

    view = _subclass(kind, {name: property(partial(read, name), partial(write, name)) for name in names})
    view.__deepcopy__, view.__reduce_ex__ = __deepcopy__, __reduce_ex__
    if hasattr(kind, "get_text_config"):
        view.get_text_config = get_text_config
    return view


def _subclass(kind: Any, properties: Mapping[str, property]) -> Any:
    made = type(kind.__name__, (kind,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
    for name, answer in properties.items():
        setattr(made, name, answer)
    return made


def _constant(value: Any) -> property:
    return property(lambda _: value)


def _holders(model: nn.Module, path: str) -> list[Any]:
    owners = [model]
    for name in path.split(".")[:-1]:
        owners.append(owners[-1].get_submodule(name))
    holders: dict[int, Any] = {id(owners[-1]): owners[-1]}
    for module in (*owners, *model.get_submodule(path).modules()):
        config = getattr(module, "config", None)
        if config is not None and hasattr(config, "__dict__"):
            holders[id(config)] = config
    return list(holders.values())


def _reordered_properties(holder: Any, path: str, order: Sequence[int], depth: int) -> dict[str, Any]:
    if isinstance(holder, nn.Module):
        return {}  # what a module computes, it computes from what it holds
    per_layer = {name: getattr(holder, name, None) for name in computed_per_layer(cast(Hashable, type(holder)))}
    # A configuration for every layer, where these differ: what is a view of the settings would number the visits.
    if getattr(holder, "is_heterogeneous", False):
        per_layer[_CONFIGURATIONS] = list(holder.per_layer_config)
    return in_visit_order(per_layer, path, order, depth)
