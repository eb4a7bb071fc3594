"""Run the parts of a model before its blocks (`capture`) and after them (`finish`), with placeholders for blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from layerwise.plan import Reduction, Step
from layerwise.stack.blocks import BlockList
from layerwise.stack.executors.entries import entries, own_blocks
from layerwise.stack.trackers import HistoryStep, carry

if TYPE_CHECKING:
    from layerwise.stack.checks.forward_trace import BlockTrace

Answer = Callable[[tuple[Any, ...], dict[str, Any]], Tensor]


@dataclass(frozen=True)
class Call:
    """The arguments that the model passes to a block. The hidden state among them is replaced before each use."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Capture:
    """One batch: the state before the first block, usually `(batch, seq, width)`, and the arguments of each block."""

    state: Tensor
    calls: tuple[Call, ...]
    inputs: Mapping[str, Any]


class Probe(nn.Module):
    """Placeholder that returns `answer(args, kwargs)`. It has the attributes of a block, or the given `attributes`."""

    def __init__(self, block: nn.Module, container: tuple[type, int] | None, answer: Answer, **attributes: Any) -> None:
        super().__init__()
        self.__dict__.update(attributes)
        # Not in the module tree: a stand-in has no parameters.
        self.__dict__["_block"] = block
        self.__dict__["_container"] = container
        self.__dict__["_answer"] = answer

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_block"], name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        state = self.__dict__["_answer"](args, kwargs)
        container = self.__dict__["_container"]
        if container is None:
            return state
        kind, length = container
        return kind((state, *[None] * (length - 1)))


def capture(model: nn.Module, blocks: BlockList, trace: BlockTrace, inputs: Mapping[str, Any]) -> Capture:
    states: list[Tensor] = []
    calls: list[Call] = []
    own = own_blocks(blocks)

    def note(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        state = read_state(args, kwargs)
        states.append(state)
        calls.append(Call(args, kwargs))
        if len(calls) == len(own):
            raise _LastBlockError
        return state

    stand_ins = [Probe(block, container, note) for block, container in zip(own, trace.containers, strict=True)]
    with entries(blocks, stand_ins), suppress(_LastBlockError):
        model(**inputs)
    return Capture(states[0], tuple(calls), inputs)


class _LastBlockError(Exception):
    """Ends a forward pass at its last block."""


def finish(
    model: nn.Module,
    blocks: BlockList,
    trace: BlockTrace,
    inputs: Mapping[str, Any],
    state: Tensor,
    way: HistoryStep | None = None,
) -> Any:
    """Run `model(**inputs)` as if its last block had returned `state`.

    In models that read the states of all layers at the end, these states come from `way`.
    """

    def answering(state: Tensor) -> Answer:
        return lambda args, kwargs: state

    own, containers = own_blocks(blocks), trace.containers
    if way is None:
        answers: list[Answer] = [read_state] * (len(own) - 1) + [answering(state)]
        stand_ins = [Probe(*each) for each in zip(own, containers, answers, strict=True)]
    else:
        record = way.to(state)
        outputs = {source - 1: each for source, each in zip(record.sources, record.states, strict=True)}
        outputs[way.layer] = outputs.pop(way.layer)
        stand_ins = [Probe(own[at], containers[at], answering(each), number=at) for at, each in outputs.items()]
    with entries(blocks, stand_ins):
        return model(**inputs)


def state_key(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | str:
    if args and isinstance(args[0], Tensor):
        return 0
    if isinstance(kwargs.get("hidden_states"), Tensor):
        return "hidden_states"
    for name, value in kwargs.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            return name
    raise TypeError("a block was called without a hidden state: no floating-point tensor among its arguments")


def read_state(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    key = state_key(args, kwargs)
    return args[key] if isinstance(key, int) else kwargs[key]


def with_state(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], state: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    key = state_key(args, kwargs)
    if isinstance(key, int):
        return (*args[:key], state, *args[key + 1 :]), dict(kwargs)
    return args, {**kwargs, key: state}


def returned_state(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple | list) else output


def with_returned_state(output: Any, state: Tensor) -> Any:
    return type(output)((state, *output[1:])) if isinstance(output, tuple | list) else state


def tokens_first(state: Tensor) -> Tensor:
    """Change the shape of a state from `(streams, batch, seq, width)` to `(batch, seq, streams, width)`."""
    return state.movedim(0, 2)


def streams_first(state: Tensor) -> Tensor:
    return state.movedim(2, 0)


class Merger:
    """Merges the branches of a group in plan order, in float32 for half precision.

    With `delta_m = out_m - base` for M branches, the result is `base + scale * sum(delta_m)`, where `scale` is `1/M`
    for mean, `1` for sum and `g/M` for gain `g`. All executors give the same bits.
    """

    __slots__ = ("_count", "_total", "base")

    def __init__(self, base: Tensor) -> None:
        self.base = base
        self._count = 0
        self._total: Tensor | None = None

    def add(self, output: Tensor) -> None:
        wide = torch.promote_types(output.dtype, torch.float32)
        # Layers of a spread model return states on their own devices.
        delta = output.to(self.base.device, wide) - self.base.to(wide)
        self._total = delta if self._total is None else self._total + delta
        self._count += 1

    def result(self, merge: Reduction) -> Tensor:
        if self._total is None:
            raise ValueError("a group was merged before any of its branches ran")
        scale = merge.weight(self._count)
        return carry(self.base, (self.base.to(self._total.dtype) + scale * self._total).to(self.base.dtype))


def follow(step: Step, state: Tensor, output: Tensor, groups: list[Merger]) -> Tensor:
    """Return the input of the next step after `step` returned `output`.

    `groups` has the mergers of the parallel groups around the step, the innermost last.
    """
    groups.extend(Merger(state) for _ in range(step.opens))
    current = output
    for close in step.closes:
        groups[-1].add(current)
        current = groups[-1].base if close is None else groups.pop().result(close)
    return current
