"""The proof that a group may run as one: what its members return together is what each returns by itself.

It is made on the small batch that layerwise makes up, with two texts and with one, and for models that keep a cache on
a token behind eleven others as well, with what that token leaves in the cache. What is compared may be apart by the
rounding of one layer (`layerwise.stack.rounding`), in float32 also for a model in half precision.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias
from warnings import catch_warnings

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from layerwise.bounded import reason_of
from layerwise.errors import UnsupportedModel
from layerwise.stack.executors.capture import Capture
from layerwise.stack.executors.clone import clone
from layerwise.stack.executors.fused.batched_parameter import UnknownOperation
from layerwise.stack.executors.fused.execution import BatchedGroup, PreparedGroup
from layerwise.stack.executors.fused.layout import joint
from layerwise.stack.executors.state import returned_state
from layerwise.stack.inputs import evaluating, example_inputs
from layerwise.stack.precision import computing_as, in_float32
from layerwise.stack.rounding import HALF, compare

if TYPE_CHECKING:
    from layerwise.stack import Stack

Layers: TypeAlias = Sequence[tuple[str | None, int]]
"""The source and the number of each layer of a group, each once, in the order of their joint weights."""


def prove(stack: Stack, prepared: PreparedGroup, stride: int) -> None:
    """Raise `UnsupportedModel`, with the reason, unless the members run as one as they run by themselves.

    `stride` is the number of cache slots of a block.
    """
    group = prepared.group
    inputs = example_inputs(stack.model)
    if inputs is None:
        raise UnsupportedModel(
            f"the group {group} cannot be fused: {type(stack.model).__name__} takes inputs that layerwise "
            "cannot make up, so that nothing can be proved. Leave out fused=True, and it runs in turn"
        )

    def compute(inputs: Mapping[str, Any]) -> str | None:
        return next(filter(None, (_failure(stack, prepared, stride, _first(inputs, texts)) for texts in (2, 1))), None)

    with evaluating(stack.model), torch.no_grad():
        reason = in_float32(stack, inputs, compute)
    if reason is not None:
        raise UnsupportedModel(
            f"the group {group} cannot be fused: {reason}. Leave out fused=True, and it runs in turn"
        )


def _first(inputs: Mapping[str, Any], texts: int) -> dict[str, Any]:
    return {name: value[:texts] if isinstance(value, Tensor) else value for name, value in inputs.items()}


def _failure(stack: Stack, prepared: PreparedGroup, stride: int, inputs: Mapping[str, Any]) -> str | None:
    """The first thing that goes wrong on a batch, in words; `None` if nothing does."""
    layers, blocks = prepared.layers(), list({id(block): block for block in prepared.blocks}.values())
    weights = joint(blocks)
    assert weights is not None, "every second of equal steps, or all of them, are at equal steps"
    captured = stack.capture(**inputs)
    if stack.sharing is not None and any(layer in stack.sharing.reads for _, layer in layers):
        return "its layers read keys and values of another layer"
    if captured.state.dim() != 3:
        return f"its hidden state is {tuple(captured.state.shape)} and not (batch, tokens, width)"
    with ExitStack() as wide:
        for block in blocks:
            wide.enter_context(computing_as(captured.state, block))
        halved = captured.state.dtype in HALF
        weights = weights if halved else {name: _widened(each) for name, each in weights.items()}
        source, first = layers[0]
        host = None if source is None else stack.block(first)
        slots = _slots([layer for _, layer in layers], stack.depth)
        if slots is None:
            return f"{stack.source.name} has fewer cache slots than the group has members"
        slots = [slot * stride for slot in slots]
        shift = slots[0] - first * stride
        group = BatchedGroup(blocks, weights, slots, prepared.siblings, shift, host)
        wide.enter_context(catch_warnings(action="ignore"))  # torch.vmap warns of functions that it cannot batch
        try:
            reason = _differs(stack, layers, stride, group, captured, None)
            last, cache = _cached(stack, inputs) if reason is None else ({}, None)
            if cache is None:
                return reason
            return _differs(stack, layers, stride, group, stack.capture_pass(last), cache)
        except UnknownOperation as unknown:
            return f"in a {type(blocks[0]).__name__} {unknown}"
        except Exception as error:  # a block may fail in any way when it meets the rows of several members
            return f"a {type(blocks[0]).__name__} fails with the rows of several: {reason_of(error)}"


def _slots(layers: Sequence[int], depth: int) -> list[int] | None:
    """A slot for each layer: its own, or a free one where another model's layer of that number has it."""
    taken: list[int] = []
    for layer in layers:
        free = (slot for slot in (layer, *range(depth)) if slot not in taken and (slot == layer or slot not in layers))
        slot = next(free, None)
        if slot is None:
            return None
        taken.append(slot)
    return taken


def _widened(weights: Tensor) -> Tensor:
    return weights.float() if weights.dtype in HALF else weights


def _cached(stack: Stack, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The inputs of a pass of the last token behind the others, and the cache that the model itself filled with these.

    The cache is `None` for a model without one.
    """
    can_generate = getattr(stack.model, "can_generate", None)
    if "input_ids" not in inputs or can_generate is None or not can_generate():
        return {}, None
    ids = inputs["input_ids"]
    output = stack.model(input_ids=ids[:, :-1], use_cache=True)
    named = {name: value for name, value in output.items() if isinstance(value, Cache)}
    return {"input_ids": ids[:, -1:], "use_cache": True, **named}, next(iter(named.values()), None)


def _differs(
    stack: Stack, layers: Layers, stride: int, group: BatchedGroup, captured: Capture, cache: Any
) -> str | None:
    """How the members' outputs for a call, and what they leave in the cache, differ from those of each by itself.

    Both sides have a copy of the cache.
    """
    own, together = copy.deepcopy(cache), copy.deepcopy(cache)
    expected = _in_turn(stack, layers, stride, group, captured, own)
    args, kwargs = _with_cache(stack.call(layers[0][1], captured.state, captured), together)
    collected = [returned_state(each) for each in group.outputs(args, kwargs)]
    what = "without a cache" if cache is None else "with a cache"
    if cache is not None:
        expected += _held(own, group.slots)
        collected += _held(together, group.slots)
    width = captured.state.shape[-1]
    for one, other in zip_longest(collected, expected, fillvalue=captured.state.new_empty(0)):
        agreement = compare(one, other, width, visits=1)
        if not agreement.holds:
            return f"{what}, the members together are not what each is by itself: {agreement}"
    return None


def _held(cache: Any, slots: Sequence[int]) -> list[Tensor]:
    """The numbers that stand in the slots of a cache."""
    layers = [layer for slot in slots for layer in getattr(cache, "layers", ())[slot : slot + 1]]
    held = [value for layer in layers for name, value in sorted(vars(layer).items())]
    return [value for value in held if isinstance(value, Tensor) and value.is_floating_point()]


def _in_turn(
    stack: Stack, layers: Layers, stride: int, group: BatchedGroup, captured: Capture, cache: Any
) -> list[Tensor]:
    outputs = []
    for (source, layer), block, slot in zip(layers, group.blocks, group.slots, strict=True):
        args, kwargs = _with_cache(stack.call(layer, captured.state, captured), cache)
        host = None if source is None else stack.block(layer)
        outputs.append(returned_state(clone(block, slot - layer * stride, host)(*args, **kwargs)))
    return outputs


def _with_cache(call: tuple[tuple[Any, ...], dict[str, Any]], cache: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with another cache, where it has one."""
    args, kwargs = call
    if cache is None:
        return args, kwargs
    return (
        tuple(cache if isinstance(each, Cache) else each for each in args),
        {name: cache if isinstance(each, Cache) else each for name, each in kwargs.items()},
    )
