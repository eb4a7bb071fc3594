"""Views of a model's configurations that fit a plan: per-layer lists in its order, and its number of layers.

While a plan runs, modules have a view instead of their configuration. Other attributes are those of the original.
Saving or copying a view gives the original, except in a forward pass, where the values of the plan are needed.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from types import FrameType
from typing import Any, cast

from torch import Tensor, nn

from layerwise.plan.config_order import computed_per_layer, in_visit_order, is_count
from layerwise.stack.blocks import block_list
from layerwise.stack.configuration import is_of_transformers, settings_of
from layerwise.stack.executors.clone import indices, subclass
from layerwise.stack.executors.entries import own_blocks

_COPYING = threading.local()

# Property with the configuration of every layer.
_CONFIGURATIONS = "per_layer_config"

# Attribute of a view with its original.
_VIEW = "_layerwise_view"

# Flag of classes created by a class statement (CPython's Py_TPFLAGS_HEAPTYPE).
_HEAP_TYPE = 1 << 9
_PLAIN = frozenset({bool, int, float, str, type(None)})

# Maximum depth of nested configurations.
_MAX_NESTING = 3


@dataclass(eq=False, slots=True)
class _Order:
    """The values that a plan changes in the configurations of a model. The keys are `id(configuration)`."""

    owners: Sequence[nn.Module]
    values: dict[int, dict[str, Any]] = field(default_factory=dict)
    holders: list[Any] = field(default_factory=list)  # keeps the identities valid
    is_running: bool = True


_Orders = tuple[_Order, ...]
_Made = dict[tuple[int, _Orders], Any]


@dataclass(eq=False, slots=True)
class _View:
    original: Any
    orders: _Orders = ()
    answers: dict[str, Any] = field(default_factory=dict)


@contextmanager
def visit_order(
    model: nn.Module, path: str, order: Sequence[int], depth: int, settings: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Make every configuration of the model return values that fit the layers `order` instead of all `depth` layers.

    `settings` replace entries of the blocks' configuration. Assignments to changed values are lost on exit.
    """
    owners = _owners(model, path)
    planned, owner = _Order(owners), owners[-1]
    config_owner = getattr(owner, "config", None) or owner
    # Read all values before any changes: a computed list may depend on a count.
    for holder in _holders(owners, model.get_submodule(path)):
        attributes = _attributes(holder)
        settings_now = {**attributes, **_computed(holder)}
        visits = _by_number(model, path, settings_now, order, depth) if holder is config_owner else (order, depth)
        values = in_visit_order(settings_now, path, *visits)
        if holder is config_owner:
            values.update({name: value for name, value in (settings or {}).items() if name in attributes})
        # Also for unchanged values, since blocks are compiled for the class of their configuration.
        if values:
            original = _view_of(holder).original
            planned.holders.append(original)
            planned.values[id(original)] = values
    own = {name: vars(owner)[name] for name in planned.values.get(id(owner), {})}
    replaced = _replace(model, planned)
    vars(owner).update(planned.values.get(id(owner), {}))
    try:
        yield
    finally:
        planned.is_running = False
        vars(owner).update(own)
        _restore(replaced, planned)


def configuration_in_order(model: Any, path: str, order: Sequence[int], depth: int) -> Any:
    with visit_order(model, path, order, depth), _copied_as_read():
        config = copy.deepcopy(model.config)
    text = config.get_text_config()
    if getattr(text, "is_heterogeneous", False):
        own = {int(layer): settings for layer, settings in text.to_dict()[_CONFIGURATIONS].items()}
        text.per_layer_config = {slot: own[layer] for slot, layer in enumerate(order) if layer in own}
    return config


@dataclass(frozen=True, slots=True)
class _Slot:
    module: nn.Module
    name: str
    before: Any
    view: Any


def _replace(model: nn.Module, planned: _Order) -> list[_Slot]:
    made: _Made = {}
    slots = []
    for module in model.modules():
        for name, value in vars(module).items():
            if _is_settings(value, (planned,)):
                view = _viewed(value, (planned,), made)
                if view is not value:
                    slots.append(_Slot(module, name, value, view))
    for slot in slots:
        vars(slot.module)[slot.name] = slot.view
    return slots


def _restore(slots: Sequence[_Slot], planned: _Order) -> None:
    made: _Made = {}
    for slot in slots:
        attributes = vars(slot.module)
        now = _view_of(attributes.get(slot.name))
        if planned in now.orders:
            left = tuple(each for each in now.orders if each is not planned)
            attributes[slot.name] = _viewed(now.original, left, made)
        elif now.original is slot.view:  # a copy, whose changes are kept
            values = planned.values[id(slot.before)]
            changed = {name: value for name, value in _attributes(slot.view).items() if name not in values}
            _attributes(slot.before).update(changed)
            attributes[slot.name] = slot.before


def _viewed(value: Any, orders: _Orders, made: _Made, nesting: int = _MAX_NESTING) -> Any:
    view = _view_of(value)
    original, orders = view.original, (*view.orders, *orders)
    key = id(original), orders
    if key not in made:
        made[key] = value  # for a value that contains itself
        answers = {
            name: inner_view
            for name, inner in _attributes(original).items()
            if nesting
            and _is_settings(inner, orders)
            and (inner_view := _viewed(inner, orders, made, nesting - 1)) is not inner
        }
        for each in orders:
            answers.update(each.values.get(id(original), {}))
        if answers:
            made[key] = _make_view(original, orders, answers)
    return made[key]


def _make_view(original: Any, orders: _Orders, answers: dict[str, Any]) -> Any:
    kind = type(original)
    if not _can_be_shared(kind):
        return _changed_copy(original, answers)
    made = object.__new__(_view_class(cast(Hashable, kind), frozenset(answers)))
    object.__setattr__(made, _VIEW, _View(original, orders, answers))
    _instance_dict(kind).__set__(made, vars(original))
    return made


def _changed_copy(config: Any, values: dict[str, Any]) -> Any:
    if isinstance(config, tuple):
        return config._replace(**values)  # type: ignore[attr-defined]
    if not hasattr(config, "__dict__") and not isinstance(config, dict):
        return dataclasses.replace(config, **values)
    made = copy.copy(config)
    if isinstance(config, dict):  # which may refuse changes, and mirror its entries as attributes
        dict.update(made, values)
    if hasattr(config, "__dict__"):
        own = values.keys() & vars(config).keys() if isinstance(config, dict) else values
        vars(made).update({name: values[name] for name in own})
    return made


@cache
def _view_class(kind: Any, names: frozenset[str]) -> Any:
    def read(name: str, self: Any) -> Any:
        return self._layerwise_view.answers[name]

    def write(name: str, self: Any, value: Any) -> None:
        self._layerwise_view.answers[name] = value

    def get_text_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        # For one side of an encoder-decoder this returns a copy, from which its cache is built.
        with _copied_as_read():
            return kind.get_text_config(self, *args, **kwargs)

    namespace: dict[str, Any] = {"__slots__": (_VIEW,)}
    if kind.__getattribute__ is object.__getattribute__:  # others may look up attributes in it
        namespace["__dict__"] = property(lambda self: vars(_copied(self)))
    view = subclass(kind, namespace)
    # Set afterwards, since a configuration class may treat its namespace as fields.
    for name in names:
        setattr(view, name, property(partial(read, name), partial(write, name)))
    view.__deepcopy__ = lambda self, memo: copy.deepcopy(_copied(self, computed=True), memo)
    view.__copy__ = lambda self: copy.copy(_copied(self, computed=True))
    view.__reduce_ex__ = lambda self, protocol: (copy.copy, (_copied(self),))  # pickle refuses another class's state
    view.__eq__ = lambda self, other: _copied(self) == _copied(other)
    view.__hash__ = None if kind.__hash__ is None else lambda self: hash(_view_of(self).original)
    if hasattr(kind, "get_text_config"):
        view.get_text_config = get_text_config
    if hasattr(kind, "to_dict"):
        view.to_dict = lambda self, *args, **kwargs: kind.to_dict(_copied(self), *args, **kwargs)
    return view


def _copied(value: Any, *, computed: bool = False) -> Any:
    """Return the original configuration of a view or, in a forward pass or after the plan, one with the view's values.

    If `computed`, the latter also has computed values.
    """
    view = _view_of(value)
    as_read = getattr(_COPYING, "as_read", False)
    as_read = as_read or any(each.is_running and _is_in_forward(each.owners) for each in view.orders)
    orders = view.orders if as_read else tuple(each for each in view.orders if not each.is_running)
    if not orders:
        return view.original
    read = view if orders == view.orders else _view_of(_viewed(view.original, orders, {}))
    own = vars(view.original)
    constants = {n: _constant(v) for n, v in read.answers.items() if computed and n not in {*own, _CONFIGURATIONS}}
    kind: Any = type(view.original)
    if constants:
        kind = subclass(kind, {})
        for name, constant in constants.items():
            setattr(kind, name, constant)
    made = object.__new__(kind)
    vars(made).update({**own, **{name: value for name, value in read.answers.items() if name in own}})
    return made


def _is_in_forward(modules: Sequence[nn.Module]) -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "forward" and any(frame.f_locals.get("self") is each for each in modules):
            return True
        frame = frame.f_back
    return False


@contextmanager
def _copied_as_read() -> Iterator[None]:
    before, _COPYING.as_read = getattr(_COPYING, "as_read", False), True
    try:
        yield
    finally:
        _COPYING.as_read = before


def _constant(value: Any) -> property:
    return property(lambda _: value)


def _instance_dict(kind: type) -> Any:
    return next(vars(each)["__dict__"] for each in kind.__mro__ if "__dict__" in vars(each))


def _can_be_shared(kind: type) -> bool:
    return bool(kind.__flags__ & _HEAP_TYPE) and kind.__dictoffset__ != 0 and not issubclass(kind, dict)


def _is_settings(value: Any, orders: _Orders) -> bool:
    kind = type(value)
    if kind.__flags__ & _HEAP_TYPE and kind.__dictoffset__ != 0:
        return not isinstance(value, nn.Module | Tensor | type)
    return kind not in _PLAIN and any(id(value) in each.values for each in orders)


def _view_of(value: Any) -> _View:
    return getattr(value, _VIEW) if hasattr(type(value), _VIEW) else _View(value)


def _attributes(value: Any) -> dict[str, Any]:
    view = _view_of(value)
    own = view.original if isinstance(view.original, dict) else getattr(view.original, "__dict__", None)
    own = settings_of(view.original) if own is None else own
    return {**own, **view.answers} if view.answers else own


def _owners(model: nn.Module, path: str) -> list[nn.Module]:
    owners = [model]
    for name in path.split(".")[:-1]:
        owners.append(owners[-1].get_submodule(name))
    return owners


def _holders(owners: Sequence[nn.Module], blocks: nn.Module) -> list[Any]:
    holders: dict[int, Any] = {id(owners[-1]): owners[-1]}
    for module in (*owners, *blocks.modules()):
        config = getattr(module, "config", None)
        if hasattr(config, "__dict__") or settings_of(config):
            holders[id(config)] = config
    return list(holders.values())


def _computed(holder: Any) -> dict[str, Any]:
    if isinstance(holder, nn.Module | dict | tuple):
        return {}  # computed from attributes that are handled
    kind = type(_view_of(holder).original)
    per_layer = {name: getattr(holder, name, None) for name in computed_per_layer(cast(Hashable, kind))}
    # Heterogeneous models have a configuration per layer.
    if is_of_transformers(holder) and getattr(holder, "is_heterogeneous", False):
        per_layer[_CONFIGURATIONS] = list(holder.per_layer_config)
    return per_layer


def _by_number(
    model: nn.Module, path: str, settings: Mapping[str, Any], order: Sequence[int], depth: int
) -> tuple[Sequence[int], int]:
    numbers = [min(indices(block), default=-1) for block in own_blocks(block_list(model, path))]
    count = settings.get("num_hidden_layers")
    if any(is_count(*each, path, depth) for each in settings.items()) or len(set(numbers)) < depth:
        return order, depth
    if type(count) is not int or not all(0 <= number < count for number in numbers):
        return order, depth
    return [numbers[layer] for layer in order], count
