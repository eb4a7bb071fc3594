"""A model's configuration under a plan: per-layer lists in visit order, and the plan's layer count.

While a plan runs, the modules of its model hold views of their configurations. A view shares the values of the
configuration, which other models may use and which is saved, and answers in visit order.
"""

from __future__ import annotations

import copy
import copyreg
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, cast

from torch import Tensor, nn

from layerwise.plan.config_order import computed_per_layer, in_visit_order

Values = dict[str, Any]
Location = tuple[dict[str, Any], str]
"""A dictionary of attributes, and the name under which it holds a configuration."""


@dataclass(slots=True)
class _View:
    """A view that a model's modules hold at `locations`, and the answers of every plan that its parts run."""

    view: Any
    original: Any
    locations: list[Location]
    answers: list[Values] = field(default_factory=list)


# By the identity of the view, which is alive as long as it is here.
_VIEWS: dict[int, _View] = {}
_CHANGING = threading.RLock()

_COPYING = threading.local()

# The property under which a configuration gives that of every layer.
_CONFIGURATIONS = "per_layer_config"

# The attribute by which a class of views is known: the class of its configurations.
_KIND = "_layerwise_kind"


@contextmanager
def visit_order(
    model: nn.Module, path: str, order: Sequence[int], depth: int, settings: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Within the context, every configuration that describes the blocks at `path` reads in visit order.

    `order` is the layer of each visit, `depth` the model's layer count. `settings` come from the configuration of the
    blocks' owner. Changes inside of values in visit order are lost on exit.
    """
    with ExitStack() as entered:
        values = _visit_order_values(model, path, order, depth, settings)
        for holder, own in values:
            if isinstance(holder, nn.Module):
                entered.enter_context(_answering(holder, own))
        configs = [(holder, own) for holder, own in values if not isinstance(holder, nn.Module)]
        entered.enter_context(_viewing(model, configs))
        yield


def _visit_order_values(
    model: nn.Module, path: str, order: Sequence[int], depth: int, settings: Mapping[str, Any] | None
) -> list[tuple[Any, Values]]:
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
    return [(holder, values) for holder, values in zip(holders, read, strict=True) if values]


def configuration_in_order(model: Any, path: str, order: Sequence[int], depth: int) -> Any:
    """A copy of the model's configuration in visit order, as a model of its own would have it."""
    with visit_order(model, path, order, depth), copied_as_read():
        config = copy.deepcopy(model.config)
    text = config.get_text_config()
    if getattr(text, "is_heterogeneous", False):
        own = {int(layer): settings for layer, settings in text.to_dict()[_CONFIGURATIONS].items()}
        text.per_layer_config = {slot: own[layer] for slot, layer in enumerate(order) if layer in own}
    return config


@contextmanager
def _answering(holder: nn.Module, values: Values) -> Iterator[None]:
    own = type(holder)
    kind = _view_class(cast(Hashable, own), frozenset(values))
    _VIEWS[id(holder)] = _View(holder, holder, [], [values])
    holder.__class__ = kind
    try:
        yield
    finally:
        holder.__class__ = own
        del _VIEWS[id(holder)]


@contextmanager
def _viewing(model: nn.Module, configs: Sequence[tuple[Any, Values]]) -> Iterator[None]:
    """Within the context the modules of `model` hold views that answer with the values of their configurations."""
    entered: list[tuple[_View, Values]] = []
    with _CHANGING:
        wanted = {id(config): (config, dict(values)) for config, values in configs}
        for outer in _configurations(model):
            if any(id(value) in wanted and value is not outer for value in vars(outer).values()):
                wanted.setdefault(id(outer), (outer, {}))
        locations = _find_locations(model, wanted)
        records = {key: _record(config, locations[key]) for key, (config, _) in wanted.items()}
        for key, (config, values) in wanted.items():
            parts = {name: records[id(value)].view for name, value in vars(config).items() if id(value) in records}
            entered.append((records[key], {**parts, **values}))
            records[key].answers.append(entered[-1][1])
            _update_class(records[key])
    try:
        yield
    finally:
        with _CHANGING:
            for record, answers in entered:
                record.answers[:] = [each for each in record.answers if each is not answers]
                if record.answers:
                    _update_class(record)
                else:
                    _give_back(record)


def _record(config: Any, locations: list[Location]) -> _View:
    """Return the record of the view that the locations hold already, or of a new one, which they hold from now on."""
    if id(config) in _VIEWS:
        return _VIEWS[id(config)]
    kind = _view_class(cast(Hashable, type(config)), frozenset())
    try:
        view = object.__new__(kind)
        object.__setattr__(view, "__dict__", vars(config))
    except (AttributeError, TypeError):  # a type whose instances keep their own dictionary, as `types.SimpleNamespace`
        view = kind()
        vars(view).update(vars(config))
    made = _VIEWS[id(view)] = _View(view, config, locations)
    for attributes, name in locations:
        attributes[name] = view
    return made


def _update_class(record: _View) -> None:
    names = frozenset(name for answers in record.answers for name in answers)
    object.__setattr__(record.view, "__class__", _view_class(cast(Hashable, getattr(type(record.view), _KIND)), names))


def _give_back(record: _View) -> None:
    for attributes, name in record.locations:
        if attributes.get(name) is record.view:
            attributes[name] = record.original
    if vars(record.view) is not vars(record.original):
        vars(record.original).update(vars(record.view))
    del _VIEWS[id(record.view)]


def _configurations(model: nn.Module) -> list[Any]:
    configs = (vars(module).get("config") for module in model.modules())
    return list({id(config): config for config in configs if hasattr(config, "__dict__")}.values())


def _find_locations(model: nn.Module, wanted: Iterable[int]) -> dict[int, list[Location]]:
    """Return where the modules of `model`, and the helper objects that they hold, keep the configurations."""
    locations: dict[int, list[Location]] = {key: [] for key in wanted}
    for module in model.modules():
        for name, value in vars(module).items():
            if id(value) in locations:
                locations[id(value)].append((vars(module), name))
            elif not isinstance(value, nn.Module | Tensor | type) and isinstance(
                held := getattr(value, "__dict__", None), dict
            ):
                nested = [(held, inner) for inner, each in held.items() if id(each) in locations]
                for location in nested:
                    locations[id(held[location[1]])].append(location)
    return locations


@contextmanager
def copied_as_read() -> Iterator[None]:
    """Within the context, copies that this thread makes of views read as the views do."""
    before, _COPYING.as_read = getattr(_COPYING, "as_read", False), True
    try:
        yield
    finally:
        _COPYING.as_read = before


def _read_answer(name: str, view: Any) -> tuple[bool, Any]:
    record = _VIEWS.get(id(view))
    for answers in reversed(record.answers if record is not None else ()):
        if name in answers:
            return True, answers[name]
    return False, None


def _answers(view: Any) -> Values:
    record = _VIEWS.get(id(view))
    return {} if record is None else {name: value for each in record.answers for name, value in each.items()}


def _original(config: Any) -> Any:
    kind = getattr(type(config), _KIND, None)
    if kind is None:
        return config
    made = object.__new__(kind)
    vars(made).update(vars(config))
    return made


@cache
def _view_class(kind: Any, names: frozenset[str]) -> Any:
    def read(name: str, self: Any) -> Any:
        answered, value = _read_answer(name, self)
        if answered:
            return value
        return vars(self)[name] if name in vars(self) else getattr(super(view, self), name)

    def write(name: str, self: Any, value: Any) -> None:
        record = _VIEWS.get(id(self))
        holding = [answers for answers in (record.answers if record is not None else ()) if name in answers]
        (holding[-1] if holding else vars(self))[name] = value

    def copied(self: Any, copying: Any) -> Any:
        now = _answers(self) if getattr(_COPYING, "as_read", False) else {}
        computed = {name: _constant(value) for name, value in now.items() if name not in {*vars(self), _CONFIGURATIONS}}
        made = object.__new__(_subclass(kind, computed) if computed else kind)
        vars(made).update(copying({**vars(self), **{n: v for n, v in now.items() if n in vars(self)}}, made))
        return made

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        def copying(values: Values, made: Any) -> Values:
            memo[id(self)] = made
            return copy.deepcopy(values, memo)

        return copied(self, copying)

    def __copy__(self: Any) -> Any:
        return copied(self, lambda values, _: values)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        return copyreg._reconstructor, (kind, object, None), dict(vars(self))  # type: ignore[attr-defined]

    def __eq__(self: Any, other: Any) -> Any:
        return self is other or _original(self) == _original(other)

    def get_text_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        # For one side of an encoder-decoder this is a copy, from which that side's cache is built.
        with copied_as_read():
            return super(view, self).get_text_config(*args, **kwargs)

    def to_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_COPYING, "as_read", False):
            return copy.deepcopy(self).to_dict(*args, **kwargs)
        return super(view, self).to_dict(*args, **kwargs)

    view = _subclass(kind, {name: property(partial(read, name), partial(write, name)) for name in names})
    view.__deepcopy__, view.__copy__, view.__reduce_ex__ = __deepcopy__, __copy__, __reduce_ex__
    setattr(view, _KIND, kind)
    if not issubclass(kind, nn.Module):
        view.__eq__, view.__hash__ = __eq__, kind.__hash__
    for method in (get_text_config, to_dict):
        if hasattr(kind, method.__name__):
            setattr(view, method.__name__, method)
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
