"""Compile blocks with `torch.compile`: one graph for each class of blocks, which all plans can use.

Parameters are inputs of the graph. Clones of blocks (for repeated layers, branches and sublayers) are not compiled.
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

METHOD = "compiled_method"
"""Class attribute that names the method to compile, if it is not `forward`."""

_GRAPHS = 64


class CompiledMethod:
    """A method that is compiled once per class of blocks, whichever block it is bound to."""

    def __init__(self, name: str, *, dynamic: bool | None) -> None:
        self.name = name
        self.dynamic = dynamic
        self._compiled: dict[type, Callable[..., Any]] = {}

    def __call__(self, block: nn.Module, *args: Any, **kwargs: Any) -> Any:
        kind = type(block)  # FSDP changes the class when it shards a block
        if kind not in self._compiled:
            self._compiled[kind] = torch.compile(getattr(kind, self.name), backend=BACKEND, dynamic=self.dynamic)
        return self._compiled[kind](block, *args, **kwargs)


def is_compiled(method: object) -> bool:
    return isinstance(method, MethodType) and isinstance(method.__func__, CompiledMethod)


@contextmanager
def compiled_blocks(blocks: Iterable[nn.Module], *, dynamic: bool | None = None) -> Iterator[None]:
    """Make each of `blocks` run the compiled graph of its class.

    If `dynamic`, one graph serves all shapes. By default, there is one for the first shape and one for all others.
    Raises `ModelError` if the forward of a block was replaced.
    """
    methods: dict[str, CompiledMethod] = {}
    shapes: Any = torch.fx.experimental._config
    with ExitStack() as undo:
        # The graph of a block is small, so DDP need not split it by buckets.
        undo.enter_context(torch._dynamo.config.patch(recompile_limit=_GRAPHS, optimize_ddp=False))
        # Otherwise a sequence as long as a layer is wide would get its own graph.
        undo.enter_context(shapes.patch(use_duck_shape=False))
        for block in blocks:
            name = getattr(type(block), METHOD, "forward")
            if name in vars(block):
                raise ModelError(
                    f"the {name} of a {type(block).__name__} was replaced by {vars(block)[name]}, so it cannot be "
                    "compiled; restore it, or do not compile"
                )
            method = methods.setdefault(name, CompiledMethod(name, dynamic=dynamic))
            vars(block)[name] = MethodType(method, block)
            undo.callback(vars(block).pop, name)
        yield
