"""Run a model's own code before its blocks (`capture`) and after them (`finish`), with stand-ins for the blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from layerwise.stack.blocks import BlockList
from layerwise.stack.checks.forward_trace import BlockTrace
from layerwise.stack.executors.entries import entries, own_blocks
from layerwise.stack.executors.state import read_state
from layerwise.stack.history.tracker import HistoryStep

Answer = Callable[[tuple[Any, ...], dict[str, Any]], Tensor]


@dataclass(frozen=True)
class Call:
    """The arguments a block receives from its model; the hidden state among them is replaced at every use."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Capture:
    """The state before the first block, usually `(batch, seq, width)`, and the arguments of each layer."""

    state: Tensor
    calls: tuple[Call, ...]
    inputs: Mapping[str, Any]


class Probe(nn.Module):
    """Stands in for a block: answers its calls, and has its attributes, after its own `attributes`."""

    def __init__(self, block: nn.Module, container: tuple[type, int] | None, answer: Answer, **attributes: Any) -> None:
        super().__init__()
        self.__dict__.update(attributes)
        # Kept out of the module tree: a stand-in owns no parameters.
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
            raise _Noted
        return state

    stand_ins = [Probe(block, container, note) for block, container in zip(own, trace.containers, strict=True)]
    with entries(blocks, stand_ins), suppress(_Noted):
        model(**inputs)
    return Capture(states[0], tuple(calls), inputs)


class _Noted(Exception):
    """Ends a forward pass whose last block has been reached."""


def finish(
    model: nn.Module,
    blocks: BlockList,
    trace: BlockTrace,
    inputs: Mapping[str, Any],
    state: Tensor,
    way: HistoryStep | None = None,
) -> Any:
    """Run `model(**inputs)` as if its blocks had arrived at `state`, and return what the model returns.

    For models that read all states after the last block, one stand-in per source returns the state on the `way`.
    """

    def answering(kept: Tensor) -> Answer:
        return lambda args, kwargs: kept

    own, containers = own_blocks(blocks), trace.containers
    if way is None:
        answers: list[Answer] = [read_state] * (len(own) - 1) + [answering(state)]
        stand_ins = [Probe(*each) for each in zip(own, containers, answers, strict=True)]
    else:
        record = way.to(state)
        left = {source - 1: kept for source, kept in zip(record.sources, record.states, strict=True)}
        left[way.layer] = left.pop(way.layer)
        stand_ins = [Probe(own[at], containers[at], answering(kept), number=at) for at, kept in left.items()]
    with entries(blocks, stand_ins):
        return model(**inputs)
