"""Fused projections: linear layers of a block that read one tensor, computed as one product.

Attention reads the same state for queries, keys and values, and a gated feed-forward layer for gate and up. Their
weights stand side by side (`layout`), so that the first layer that is called computes the product for all of them, and
the others return their columns of it. Each stays a module of its own, with its hooks and its name. Which layers
read one tensor is seen in a pass of the model, and no architecture is named.

A layer computes its own product, from its own weights,

- while gradients of its weights are recorded;
- in passes of more than `TOKENS` tokens, which keep the machine busy as they are;
- once its weights were replaced (moved to another device or dtype) inside the context.

A product of other shape is computed by another kernel, so the two agree up to rounding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from layerwise.errors import ModelError
from layerwise.stack.executors.fused.batched_parameter import BatchedParameter
from layerwise.stack.executors.fused.layout import Joint, Siblings, side_by_side

TOKENS = 64
"""The longest pass, in tokens of all texts, in which layers and members of a group are fused."""


def sibling_projections(blocks: Sequence[nn.Module], run: Callable[[], object]) -> list[Siblings]:
    """For each of `blocks`, its linear layers that read one tensor in the pass `run()`, as tuples of their paths.

    Left out are layers that are called more than once in the pass, or that are anything else than a `nn.Linear` over
    floating-point parameters; and tensors that were changed between two calls.
    """
    calls: list[list[tuple[str, nn.Linear, Tensor, Tensor]]] = [[] for _ in blocks]

    def note(block: int, path: str, module: nn.Linear, args: tuple[Any, ...]) -> None:
        if len(args) == 1 and isinstance(args[0], Tensor):
            calls[block].append((path, module, args[0], args[0].clone()))

    with ExitStack() as hooks:
        for number, block in enumerate(blocks):
            for path, module in block.named_modules():
                if type(module) is nn.Linear and "forward" not in vars(module) and _is_plain(module):
                    hooks.enter_context(module.register_forward_pre_hook(partial(note, number, path)))
        run()
    return [_siblings(each) for each in calls]


def _is_plain(module: nn.Linear) -> bool:
    return all(
        type(each) is nn.Parameter and type(each.data) is Tensor and each.is_floating_point()
        for each in module.parameters()
    )


def _siblings(calls: Sequence[tuple[str, nn.Linear, Tensor, Tensor]]) -> Siblings:
    paths = [path for path, *_ in calls]
    readers: dict[int, list[tuple[str, nn.Linear]]] = {}
    first: dict[int, Tensor] = {}
    for path, module, read, copied in calls:
        before = first.setdefault(id(read), copied)
        if paths.count(path) == 1 and torch.equal(before, copied):
            readers.setdefault(id(read), []).append((path, module))
    collected = []
    for together in readers.values():
        alike = [(path, module) for path, module in together if _kind(module) == _kind(together[0][1])]
        if len(alike) > 1:
            collected.append(tuple(path for path, _ in alike))
    return tuple(collected)


def _kind(module: nn.Linear) -> Any:
    return module.in_features, module.weight.dtype, module.weight.device, module.bias is None


class FusedProjections:
    """Linear layers over one tensor: `forward(number)` stands for the forward of the layer of that number.

    `weight` `(sum of out, in)` and `bias` `(sum of out)` are those of the layers at `paths`, one behind the other; in
    `joint` each has its own.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, joint: Joint, paths: Sequence[str]) -> None:
        own = [joint[f"{path}.weight"] for path in paths]
        self._weight = weight
        self._bias = bias
        self._sizes = [each.shape[1] for each in own]
        self._locations = [each.data_ptr() for each in own]
        self._local = threading.local()

    def forward(self, number: int, module: nn.Module, state: Tensor) -> Tensor:
        """`state W^T + b` of the layer: computed with all others at the call of the first, or by itself."""
        weight = module._parameters["weight"]  # a lookup by the module's own `__getattr__` takes as long as all of this
        if (
            weight is None
            or weight.data_ptr() != self._locations[number]
            or state.numel() > TOKENS * state.shape[-1]
            or (weight.requires_grad and torch.is_grad_enabled())
        ):
            return F.linear(state, *(getattr(module, name) for name in ("weight", "bias")))
        return self.product(number, state)

    def product(self, number: int, state: Tensor) -> Tensor:
        """The columns that are the layer's, of the product for all layers; made anew for the first of them."""
        local = self._local
        if number == 0 or getattr(local, "state", None) is not state:
            local.state = state
            local.outputs = torch.split(F.linear(state, self._weight, self._bias), self._sizes, dim=-1)
        output: Tensor = local.outputs[number]
        if number == len(self._sizes) - 1:
            local.state = local.outputs = None
        return output

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise ModelError(
            "a model cannot be copied or pickled while its projections are fused: leave that `with` block first"
        )


@contextmanager
def projecting(block: nn.Module, joint: Joint, siblings: Siblings) -> Iterator[None]:
    """Within the context the `siblings` among the block's linear layers compute as one; `joint` is of this block."""
    replaced: list[dict[str, Any]] = []
    try:
        for paths in siblings:
            modules = [block.get_submodule(path) for path in paths]
            weight, bias = side_by_side(joint, paths)
            fused = FusedProjections(weight[0], None if bias is None else bias[0], joint, paths)
            for number, module in enumerate(modules):
                vars(module)["forward"] = partial(fused.forward, number, module)
                replaced.append(vars(module))
        yield
    finally:
        for state in replaced:
            del state["forward"]


def batched_projections(block: nn.Module, joint: Joint, siblings: Siblings) -> None:
    """Let the `siblings` of a batched block compute as one; `joint` are the weights of all members."""
    for paths in siblings:
        weight, bias = side_by_side(joint, paths)
        fused = FusedProjections(
            BatchedParameter(weight), None if bias is None else BatchedParameter(bias), joint, paths
        )
        for number, path in enumerate(paths):
            vars(block.get_submodule(path))["forward"] = partial(fused.product, number)
