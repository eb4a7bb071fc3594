"""A parameter that stands for those of several layers, and says so wherever it is used.

It has the shape, dtype and device of one layer's parameter, and behind that the weights of all members. Every
function of torch that is called with one is answered by `operations`, on a batch that holds the rows of all members,
those of the first member first. Functions that are called with no such parameter know nothing of it, and lose nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class UnknownOperation(Exception):
    """A parameter was used in a way that has no meaning, or none that is known, for several members at once."""


class _Rows(threading.local):
    """The rows that a batch of all members has in the pass that the calling thread is in."""

    now = 0


_ROWS = _Rows()


@contextmanager
def rows(count: int) -> Iterator[None]:
    """Within the context the first axis of activations is a multiple of `count`: members x rows of each."""
    before, _ROWS.now = _ROWS.now, count
    try:
        yield
    finally:
        _ROWS.now = before


def by_member(activation: Tensor, members: int) -> Tensor:
    """`(members * n, ...)` as `(members, n, ...)`; raises `UnknownOperation` for what is no batch of all members."""
    shape = activation.shape
    if not shape or not _ROWS.now or shape[0] % _ROWS.now:
        raise UnknownOperation(
            f"a weight meets a tensor of shape {tuple(shape)}, whose first axis is not the rows of the batch"
        )
    return activation.reshape(members, shape[0] // members, *shape[1:])


class BatchedParameter(Tensor):
    """The parameter of one layer to whoever asks, and `joint`, `(members, *shape)`, to `operations`."""

    joint: Tensor
    transposed: Tensor
    """For a matrix, `joint` with its last two axes exchanged."""
    row: Tensor
    """For a vector, `joint` as `(members, 1, length)`."""

    @staticmethod
    def __new__(cls, joint: Tensor) -> BatchedParameter:
        made = torch.Tensor._make_wrapper_subclass(
            cls, joint.shape[1:], dtype=joint.dtype, device=joint.device, requires_grad=False
        )
        made.joint = joint
        if joint.dim() == 3:
            made.transposed = joint.transpose(1, 2)
        if joint.dim() == 2:
            made.row = joint.unsqueeze(1)
        return made

    @property
    def members(self) -> int:
        """How many layers it stands for."""
        return self.joint.shape[0]

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        from layerwise.stack.executors.fused.operations import call

        return call(func, tuple(args), dict(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise UnknownOperation(f"{func} uses a weight past torch's functions")
