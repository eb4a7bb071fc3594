"""Count the floating-point operations per token of a forward pass, for each layer.

The formulas are torch's and those in `FORMULAS`. A multiply-add counts as two operations, and attention includes masked
future positions. Norms, activations, look-ups and elementwise operations are not counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from transformers.integrations import moe  # noqa: F401  registers the kernel that grouped products fall back on

from layerwise.errors import MeasureError
from layerwise.plan.schedule.cost import ModelCost
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating, example_inputs

Shape = Sequence[int]

NON_ARITHMETIC_KERNELS = frozenset(
    f"aten.{name}"
    for name in (
        "cat",
        "stack",
        "copy",
        "set",
        "equal",
        "polar",
        "index_add",
        "index_copy",
        "index_put",
        "_index_put_impl",
        "index_reduce",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "masked_scatter",
        "slice_scatter",
        "select_scatter",
        "diagonal_scatter",
        "as_strided_scatter",
        "_weight_norm_interface",
        "grid_sampler_2d",
        "grid_sampler_3d",
    )
)
"""Kernels that read several matrices but do little arithmetic."""


def grouped_product(left: Shape, right: Shape, *_: Any, **__: Any) -> int:
    """Return the operations of `_grouped_mm`: 2 * rows * inner * columns.

    If both arguments have three axes, this is multiplied by the number of groups. Otherwise the groups divide one of
    the three dimensions among them.
    """
    groups = left[0] if len(left) == len(right) == 3 else 1
    return 2 * groups * left[-2] * left[-1] * right[-1]


def product_with_vector(matrix: Shape, vector: Shape, *_: Any, **__: Any) -> int:
    """Return the operations of `mv` for a matrix (rows, inner), and of `dot` for two vectors (inner,)."""
    return 2 * prod(matrix)


def triangular_solve(matrix: Shape, right: Shape, *_: Any, left: bool = True, **__: Any) -> int:
    """Return the operations of `linalg_solve_triangular` for (..., n, n) and (..., n, m), which are n^2 per column."""
    return prod(right) * matrix[-1]


FORMULAS: Mapping[Any, Callable[..., int]] = {
    torch.ops.aten._grouped_mm: grouped_product,
    torch.ops.transformers.grouped_mm_fallback: grouped_product,
    torch.ops.transformers.grouped_mm_fallback_backward: lambda left, right, *_, **__: 2 * grouped_product(left, right),
    torch.ops.aten.mv: product_with_vector,
    torch.ops.aten.dot: product_with_vector,
    torch.ops.aten.addmv: lambda start, matrix, vector, *_, **__: product_with_vector(matrix, vector),
    torch.ops.aten.linalg_solve_triangular: triangular_solve,
}
"""Formulas for kernels that torch's counter does not support, as functions of the shapes of their arguments."""


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count the `operations` within the context, and list kernels that cannot be counted in `unknown`.

    These kernels have no formula, read several matrices, are not pointwise and are not in `NON_ARITHMETIC_KERNELS`.

    >>> with OperationCounter() as count:
    ...     product = torch.ones(3, 4) @ torch.ones(4, 5)
    >>> count.operations, count.unknown
    (120, [])
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0
        self.unknown: list[str] = []
        self._formulas = FlopCounterMode(display=False, custom_mapping=dict(FORMULAS)).flop_registry
        self._read: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kernel = getattr(func, "overloadpacket", func)
        formula = self._formulas.get(kernel)
        if formula is None and getattr(func, "namespace", "") == "aten":
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if formula is not None:
            self.operations += formula(*args, **kwargs, out_val=result)
        if not getattr(func, "is_view", False):
            self._note(func, [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)], formula)
        return result

    def _note(self, func: Any, given: Sequence[Tensor], formula: Callable[..., int] | None) -> None:
        self._read.update(tensor.data_ptr() for tensor in given)
        matrices = [tensor for tensor in given if _is_matrix(tensor)]
        if len(matrices) > 1 and formula is None and not _is_elementwise(func):
            self.unknown.append(f"{func} of " + " and ".join(str(tuple(tensor.shape)) for tensor in matrices[:3]))

    def unread(self, module: nn.Module) -> tuple[str, ...]:
        read = sorted(self._read)
        stacks = [(name, weight) for name, weight in module.named_parameters() if weight.ndim > 2]
        return tuple(name for name, weight in stacks if not _reads(read, weight))


def _is_matrix(tensor: Tensor) -> bool:
    return (
        tensor.ndim > 1
        and (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype.itemsize == 1)
        and (tensor.dtype != torch.bool)
    )


def _is_elementwise(func: Any) -> bool:
    name = str(getattr(func, "overloadpacket", func)).removesuffix("_")
    return torch.Tag.pointwise in getattr(func, "tags", ()) or name in NON_ARITHMETIC_KERNELS


def _reads(read: Sequence[int], weight: Tensor) -> bool:
    first = weight.data_ptr()
    return bisect_right(read, first + weight.numel() * weight.element_size() - 1) > bisect_right(read, first - 1)


_Result = TypeVar("_Result")


def model_cost(stack: Stack, length: int = 1) -> ModelCost:
    """Count the FLOPs of each layer, the embedding and the head, per token of a text of `length` tokens (or per image).

    If no operations of a layer are seen, they are estimated as twice its weights (Kaplan et al. 2020, arXiv
    2001.08361). Raises `MeasureError` if the inputs of the model are unknown or a kernel cannot be counted.

    >>> from layerwise.stack import load
    >>> cost = model_cost(load("demo"), length=128)
    >>> len(cost.layers), cost.embedding
    (12, 0.0)
    """
    inputs = example_inputs(stack.model, length)
    if inputs is None:
        raise MeasureError(
            f"The cost of {stack.source.name} cannot be counted, because the inputs of {type(stack.model).__name__} "
            "are unknown. Pass a ModelCost."
        )
    first = next(iter(inputs.values()))
    units = first.numel() if "input_ids" in inputs else len(first)
    layers = []
    with evaluating(stack.model), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        stack.capture(**inputs)  # so that the inspection of the model is not counted
        captured, embedding = _count_operations(lambda: stack.capture(**inputs), stack, "before its layers")
        state = captured.state
        for layer in range(stack.depth):
            run = partial(stack.apply, layer, state, captured)
            state, counted = _count_operations(run, stack, f"in layer {layer}", stack.block(layer))
            layers.append(counted or 2 * sum(weight.numel() for weight in stack.block(layer).parameters()) * units)
        _, around = _count_operations(lambda: stack.finish(state, captured.inputs), stack, "after its layers")
    return ModelCost(
        layers=tuple(counted / units for counted in layers),
        embedding=embedding / units,
        head=(around - embedding) / units,
    )


def _count_operations(
    run: Callable[[], _Result], stack: Stack, where: str, block: nn.Module | None = None
) -> tuple[_Result, int]:
    with OperationCounter() as count:
        result = run()
    unknown = [f"the kernel {each}" for each in count.unknown]
    if block is not None and count.operations:
        unknown += [f"a kernel that torch does not see, which reads {name}" for name in count.unread(block)]
    if unknown:
        raise MeasureError(
            f"The cost of {stack.source.name} cannot be counted, because the operations of {unknown[0]} ({where}) are "
            'unknown. Load the model with attn_implementation="eager" and experts_implementation="eager", or pass a '
            "ModelCost."
        )
    return result, count.operations
