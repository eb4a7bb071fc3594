"""Blocks that torch compiles: one graph for each class of blocks, for any plan.

The parameters are inputs of the graph. A visit with state of its own (a repeated layer, a member of a group, a
sublayer) runs uncompiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import Any

import torch
import torch.fx.experimental._config
from torch import nn

from layerwise.errors import ModelError

BACKEND: Any = "inductor"
"""What compiles the graphs, as `torch.compile` names it."""

METHOD = "compiled_method"
"""The attribute under which a class of blocks names the method to compile, where that is not the whole `forward`."""

_GRAPHS = 64


class CompiledMethod:
    """The method called `name` of whatever block it is bound to, compiled once for every class of blocks."""

    def __init__(self, name: str, *, dynamic: bool | None) -> None:
        self.name = name
        self.dynamic = dynamic
        self._compiled: dict[type, Callable[..., Any]] = {}

    def __call__(self, block: nn.Module, *args: Any, **kwargs: Any) -> Any:
        kind = type(block)  # asked every time: FSDP gives blocks another class when it shards them
        if kind not in self._compiled:
            self._compiled[kind] = torch.compile(getattr(kind, self.name), backend=BACKEND, dynamic=self.dynamic)
        return self._compiled[kind](block, *args, **kwargs)


def is_compiled(method: object) -> bool:
    return isinstance(method, MethodType) and isinstance(method.__func__, CompiledMethod)


@contextmanager
def compiled_blocks(blocks: Iterable[nn.Module], *, dynamic: bool | None = None) -> Iterator[None]:
    """Within the context every call of one of `blocks` runs the graph of its kind, compiled when it is first needed.

    With `dynamic` one graph serves inputs of every shape; by default it is that of the first shape, and a second one
    serves all others. Raises `ModelError` for a block whose forward was replaced by something that is not its class's.
    """
    methods: dict[str, CompiledMethod] = {}
    shapes: Any = torch.fx.experimental._config
    with ExitStack() as undo:
        # The graph of a block is small: DistributedDataParallel's buckets need not cut it to pieces.
        undo.enter_context(torch._dynamo.config.patch(recompile_limit=_GRAPHS, optimize_ddp=False))
        # A text that happens to be as long as a layer is wide would make a graph for that length alone.
        undo.enter_context(shapes.patch(use_duck_shape=False))
        for block in blocks:
            name = getattr(type(block), METHOD, "forward")
            if name in vars(block):
                raise ModelError(
                    f"the {name} of a {type(block).__name__} was replaced by {vars(block)[name]}, and blocks are "
                    "compiled as their class has them; restore it, or do not compile"
                )
            method = methods.setdefault(name, CompiledMethod(name, dynamic=dynamic))
            vars(block)[name] = MethodType(method, block)
            undo.callback(vars(block).pop, name)
        yield
