"""Observe how a model uses its blocks in one forward pass, and refuse models that plans cannot run."""

from __future__ import annotations

import inspect
from collections import UserDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from layerwise.errors import UnsupportedModelError
from layerwise.stack.blocks import lists_inside
from layerwise.stack.executors.capture import read_state, returned_state
from layerwise.stack.rounding import same
from layerwise.stack.trackers import KeyValueSharing, reads_history


class UnfitInputsError(UnsupportedModelError):
    """The model does not run on these inputs, or does not reach its blocks."""


class StepwiseError(UnsupportedModelError):
    """The model runs, but fails when its blocks are called one by one."""


@dataclass(frozen=True)
class BlockTrace:
    """Describes how a model uses its blocks.

    Attributes:
        containers: Type and length of the tuple or list that each block returns; None if it returns a tensor.
        output: The output of the model.
        mixes: True if blocks read the states of earlier layers from a `DepthHistory`.
        sharing: Which layers read the keys and values of other layers.
        streams_first: True if the hidden state is `(streams, batch, seq, width)` (AltUp).
    """

    containers: tuple[tuple[type, int] | None, ...]
    output: Any
    mixes: bool = False
    sharing: KeyValueSharing | None = None
    streams_first: bool = False


# Errors that a model raises for unsupported inputs.
_INPUT_ERRORS = (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)

# Inputs of towers other than text.
_MEDIA = ("pixel_values", "pixel_values_videos", "input_features", "input_values")


@dataclass(frozen=True)
class _Handed:
    name: str
    tensor: Tensor
    version: int | None
    values: Tensor

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> _Handed:
        return cls(name, tensor, _version(tensor), tensor.clone())

    def is_changed(self) -> bool:
        return self.version != _version(self.tensor) or not same(self.tensor, self.values)


@dataclass
class _Call:
    layer: int
    state: Tensor
    arguments: list[Tensor]
    shared: list[tuple[Mapping[Any, Any], frozenset[Any]]]
    handed: list[_Handed]
    output: Any = None
    writes: bool = False
    mixes: bool = False
    changed: str | None = None


@dataclass
class _Uses:
    layer: int | None = None
    reads: list[tuple[int, str, Hashable]] = field(default_factory=list)
    writes: list[tuple[int, str, Hashable]] = field(default_factory=list)


@dataclass
class _Watch:
    calls: list[_Call] = field(default_factory=list)
    uses: _Uses = field(default_factory=_Uses)

    def before(self, layer: int, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        state = read_state(args, kwargs)
        others = [value for value in (*args, *kwargs.values()) if value is not state]
        shared: list[tuple[Mapping[Any, Any], frozenset[Any]]] = [
            (value, frozenset(value)) for value in others if type(value) is dict
        ]
        arguments = [(f"its argument {name}", value) for name, value in kwargs.items()]
        arguments += [(f"its argument at position {position}", value) for position, value in enumerate(args)]
        named = [("the hidden state" if value is state else name, value) for name, value in arguments]
        handed = [_Handed.of(name, tensor) for name, value in named for tensor in tensors(value)]
        mixes = reads_history(kwargs)
        self.calls.append(_Call(layer, state, list(tensors(others)), shared, handed, mixes=mixes))
        self.uses.layer = layer
        for name, value in kwargs.items():
            if isinstance(value, UserDict) and "_uses" not in vars(value):
                vars(value).update(_uses=self.uses, _keyword=name)
                value.__class__ = _watched(cast(Hashable, type(value)))

    def after(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self.uses.layer = None
        call = self.calls[-1]
        call.output = output
        call.writes = any(frozenset(mapping) != keys for mapping, keys in call.shared)
        call.changed = next((handed.name for handed in call.handed if handed.is_changed()), None)
        call.handed = []


def trace_blocks(model: nn.Module, blocks: Sequence[nn.Module], inputs: Mapping[str, Any]) -> BlockTrace:
    """Run `model(**inputs)` and report how it uses `blocks`.

    Raises `UnsupportedModelError` if blocks share parameters, do not run once each in order, modify their inputs in
    place, or pass on more than the hidden state, or if the model changes the state between two blocks.
    """
    _refuse_shared_parameters(model, blocks)
    watch = _Watch()
    try:
        with ExitStack() as hooks:
            for layer, block in enumerate(blocks):
                hooks.enter_context(block.register_forward_pre_hook(partial(watch.before, layer), with_kwargs=True))
                hooks.enter_context(block.register_forward_hook(watch.after))
            output = model(**inputs)
    except _INPUT_ERRORS:  # or an error of the hooks
        _refuse_unfit(model, inputs)
        raise
    _refuse_unreached(model, watch.calls, inputs)
    _refuse_other_order(model, watch.calls, len(blocks))
    _refuse_changed_arguments(model, watch.calls)
    for earlier, later in zip(watch.calls, watch.calls[1:], strict=False):
        _refuse_changed_state(model, blocks, earlier, later)
    _refuse_threaded_state(model, watch.calls)
    outputs = [call.output for call in watch.calls]
    containers = tuple((type(each), len(each)) if isinstance(each, tuple | list) else None for each in outputs)
    mixes = any(call.mixes for call in watch.calls)
    ids, state = inputs.get("input_ids"), watch.calls[0].state
    streams_first = isinstance(ids, Tensor) and state.ndim == 4 and state.shape[1:3] == ids.shape
    return BlockTrace(containers, output, mixes, _sharing(model, watch.uses), streams_first)


def _refuse_unfit(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    try:
        model(**inputs)
    except _INPUT_ERRORS as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise UnfitInputsError(
            f"{type(model).__name__} fails on the inputs {', '.join(inputs)} ({type(error).__name__}: {error}); pass "
            "inputs that it accepts: stack.inspect(**inputs)"
        ) from error


def _refuse_unreached(model: nn.Module, calls: Sequence[_Call], inputs: Mapping[str, Any]) -> None:
    others = [name for name in inspect.signature(model.forward).parameters if name in _MEDIA and name not in inputs]
    if others and not calls:
        raise UnfitInputsError(
            f"{type(model).__name__} runs none of these blocks on the inputs {', '.join(inputs)}; pass inputs that "
            f"reach them, such as {' or '.join(others)}: stack.inspect(**inputs)"
        )


@cache
def _watched(kind: Any) -> Any:
    def get_item(self: Any, name: Hashable) -> Any:
        if self._uses.layer is not None:
            self._uses.reads.append((self._uses.layer, self._keyword, name))
        return kind.__getitem__(self, name)

    def set_item(self: Any, name: Hashable, value: Any) -> None:
        if self._uses.layer is not None:
            self._uses.writes.append((self._uses.layer, self._keyword, name))
        kind.__setitem__(self, name, value)

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        # accelerate moves it to the device of a block; the block itself reads and writes nothing.
        layer, self._uses.layer = self._uses.layer, None
        try:
            return kind.to(self, *args, **kwargs)
        finally:
            self._uses.layer = layer

    methods: dict[str, Any] = {"__getitem__": get_item, "__setitem__": set_item}
    return type(kind.__name__, (kind,), methods | ({"to": to} if hasattr(kind, "to") else {}))


def _sharing(model: nn.Module, uses: _Uses) -> KeyValueSharing | None:
    writers: dict[Hashable, int] = {}
    for layer, _, name in uses.writes:
        if writers.setdefault(name, layer) != layer:
            raise UnsupportedModelError(
                f"{type(model).__name__}: blocks {writers[name]} and {layer} both write the keys and values "
                f"{name!r}, so readers depend on which ran last; such stacks are not supported"
            )
    reads: dict[int, tuple[Hashable, ...]] = {}
    for layer, _, name in uses.reads:
        if writers.get(name, layer) != layer and name not in reads.get(layer, ()):
            reads[layer] = (*reads.get(layer, ()), name)
    if not reads:
        return None
    keywords = {keyword for _, keyword, _ in uses.writes}
    if len(keywords) > 1:
        raise UnsupportedModelError(
            f"{type(model).__name__}: blocks share keys and values through {len(keywords)} arguments "
            f"({', '.join(sorted(keywords))}), but only one is supported"
        )
    (keyword,) = keywords
    read = {name for names in reads.values() for name in names}
    return KeyValueSharing(keyword, {name: layer for name, layer in writers.items() if name in read}, reads)


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield every tensor inside nested tuples, lists and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _refuse_shared_parameters(model: nn.Module, blocks: Sequence[nn.Module]) -> None:
    owner: dict[int, int] = {}
    for layer, block in enumerate(blocks):
        for parameter in block.parameters():
            first = owner.setdefault(id(parameter), layer)
            if first != layer:
                raise UnsupportedModelError(
                    f"{type(model).__name__}: blocks {first} and {layer} share parameters, which is not supported"
                )


def _refuse_other_order(model: nn.Module, calls: Sequence[_Call], depth: int) -> None:
    order = [call.layer for call in calls]
    if order == list(range(depth)):
        return
    passes, rest = divmod(len(order), depth)
    if passes > 1 and not rest and order == list(range(depth)) * passes:
        plan = f"0*{passes}" if depth == 1 else f"[0-{depth - 1}]*{passes}"
        blocks = "block" if depth == 1 else "blocks"
        setting = "num_hidden_layers=1" if depth == 1 else "one pass (Ouro: total_ut_steps=1)"
        raise UnsupportedModelError(
            f"{type(model).__name__} runs its {depth} {blocks} {passes} times, but repeats must come from a plan; "
            f"configure {setting}, and run it under the plan {plan}"
        )
    counts = {layer: order.count(layer) for layer in range(depth)}
    repeated = [f"block {layer} {count} times" for layer, count in counts.items() if count != 1]
    difference = f"it calls {', '.join(repeated[:3])}" if repeated else f"it calls them as {order}"
    if order and order == list(range(len(order))):
        difference = f"it stops after {len(order)} (its configuration may count {len(order)} layers)"
    raise UnsupportedModelError(
        f"{type(model).__name__} does not run its {depth} blocks once each and in order: {difference}; "
        "models that share, skip or reorder blocks themselves are not supported"
    )


def _refuse_changed_arguments(model: nn.Module, calls: Sequence[_Call]) -> None:
    for call in calls:
        if call.changed is not None:
            raise UnsupportedModelError(
                f"{type(model).__name__}: block {call.layer} changes {call.changed} in place, but plans pass that "
                "tensor to other layers too; write x = x + f(x) in its forward, not x += f(x)"
            )


def _refuse_changed_state(model: nn.Module, blocks: Sequence[nn.Module], earlier: _Call, later: _Call) -> None:
    state = returned_state(earlier.output)
    if not isinstance(state, Tensor) or state.shape != earlier.state.shape:
        inside = lists_inside(model, blocks)
        raise UnsupportedModelError(
            f"{type(model).__name__}: block {earlier.layer} changes the shape of the hidden state, so its layers "
            "cannot be reordered; select the blocks of one stage with "
            + (" or ".join(f"layers={path!r}" for path in inside) or "layers='path.to.blocks'")
        )
    if state is not later.state and not (state.shape == later.state.shape and torch.equal(state, later.state)):
        raise UnsupportedModelError(
            f"{type(model).__name__} changes the hidden state between blocks {earlier.layer} and {later.layer}; "
            "plans cannot express such a step"
        )


def _refuse_threaded_state(model: nn.Module, calls: Sequence[_Call]) -> None:
    handed: dict[int, int] = {}
    for call in calls:
        for argument in call.arguments:
            if id(argument) in handed:
                raise UnsupportedModelError(
                    f"{type(model).__name__}: block {handed[id(argument)]} passes more than the hidden state to block "
                    f"{call.layer} (a position bias, an index, another stream), so layers depend on their predecessors"
                )
        if call.writes:
            raise UnsupportedModelError(
                f"{type(model).__name__}: block {call.layer} writes keys or values that later blocks read "
                "(KV sharing), so a plan could skip the writer and break the readers"
            )
        if isinstance(call.output, tuple | list):
            handed.update({id(extra): call.layer for extra in tensors(call.output[1:])})
