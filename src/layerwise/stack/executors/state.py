"""Where the hidden state is in a block's call, and how the states of branches are merged (`Merger`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from layerwise.plan import Reduction, Step
from layerwise.stack.history.shared_key_values import carry


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
    """A state of shape (streams, batch, seq, width) as one of shape (batch, seq, streams, width): the same memory."""
    return state.movedim(0, 2)


def streams_first(state: Tensor) -> Tensor:
    return state.movedim(2, 0)


class Merger:
    """Folds the branches of a group into one state, one at a time, in float32 for half precision, in plan order.

    With `delta_m = out_m - base` over M branches the result is `base + scale * sum(delta_m)`, where `scale` is `1/M`
    for mean, `1` for sum and `g/M` for gain `g`. All executors give the same bits.
    """

    __slots__ = ("_count", "_total", "base")

    def __init__(self, base: Tensor) -> None:
        self.base = base
        self._count = 0
        self._total: Tensor | None = None

    def add(self, output: Tensor) -> None:
        wide = torch.promote_types(output.dtype, torch.float32)
        # Layers of a model that is spread return states on their own devices.
        delta = output.to(self.base.device, wide) - self.base.to(wide)
        self._total = delta if self._total is None else self._total + delta
        self._count += 1

    def result(self, merge: Reduction) -> Tensor:
        if self._total is None:
            raise ValueError("a group was merged before any of its branches ran")
        scale = merge.weight(self._count)
        return carry(self.base, (self.base.to(self._total.dtype) + scale * self._total).to(self.base.dtype))


def follow(step: Step, state: Tensor, output: Tensor, groups: list[Merger]) -> Tensor:
    """Return the state after `step`; `groups` holds the open groups, innermost last.

    A step opens its groups at its input. At the end of a branch the output is folded and the next starts from the same
    input; the last end returns the merge.
    """
    groups.extend(Merger(state) for _ in range(step.opens))
    current = output
    for close in step.closes:
        groups[-1].add(current)
        current = groups[-1].base if close is None else groups.pop().result(close)
    return current
