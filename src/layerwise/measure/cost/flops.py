"""What a model's layers cost: the floating-point operations of a forward pass, by layer, for one token.

A growth schedule is priced by three numbers of a model: what its layers, what comes before them (`embedding`) and what
comes after them (`head`) compute for a token. They are counted, not assumed: every part is run once on a small batch
under torch's own counter, which sees matrix products, convolutions and attention, and counts a multiply-add as two
operations. `layerwise.measure.cost.counted_operations` adds formulas for what it does not know, such as the grouped
products of a mixture of experts, of which a token's cost holds the experts that it is sent to. Attention is counted
whole, future positions included, as kernels without a causal shortcut compute it; so the cost of a token depends on the
length of its text. Norms, activations, look-ups and the elementwise part of a state-space scan are not counted: they
take time, but hardly any operations.

Nothing is missed in silence. A kernel that combines matrices and has no formula is refused, and so is a layer with a
stack of matrices that no kernel reads. A layer of which nothing at all is seen, such as one kernel of somebody else's,
is taken at twice its weights (Kaplan et al. 2020, arXiv 2001.08361, section 2.1), which is what the counter finds for a
dense layer without its attention.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from layerwise.errors import MeasureError
from layerwise.measure.cost.counted_operations import Count
from layerwise.plan.schedule.cost import ModelCost
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating, example_inputs

_Result = TypeVar("_Result")


def model_cost(stack: Stack, length: int = 1) -> ModelCost:
    """FLOPs of the forward pass of one token of a text of `length`: of every layer, of the embedding and of the head.

    For a model of images the unit is an image, and `length` is not read. Raises `MeasureError` for a model whose kind
    of input is not known, and for one that runs a kernel whose operations nothing here can count.

    >>> from layerwise.stack import load
    >>> cost = model_cost(load("demo"), length=128)
    >>> len(cost.layers), cost.embedding
    (12, 0.0)
    """
    inputs = example_inputs(stack.model, length)
    if inputs is None:
        raise MeasureError(
            f"the cost of {stack.source.name} is counted on a made-up batch, and what {type(stack.model).__name__} "
            "reads is not known; give its cost as a ModelCost"
        )
    first = next(iter(inputs.values()))
    units = first.numel() if "input_ids" in inputs else len(first)
    layers = []
    with evaluating(stack.model), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        stack.capture(**inputs)  # a model that was not inspected yet is inspected now, and not while it is counted
        captured, embedding = _counted(lambda: stack.capture(**inputs), stack, "before its layers")
        state = captured.state
        for layer in range(stack.depth):
            run = partial(stack.apply, layer, state, captured)
            state, counted = _counted(run, stack, f"in layer {layer}", stack.block(layer))
            layers.append(counted or _weights_twice(stack, layer) * units)
        _, around = _counted(lambda: stack.finish(state, captured.inputs), stack, "after its layers")
    return ModelCost(
        layers=tuple(counted / units for counted in layers),
        embedding=embedding / units,
        head=(around - embedding) / units,
    )


def _counted(
    run: Callable[[], _Result], stack: Stack, where: str, block: nn.Module | None = None
) -> tuple[_Result, int]:
    """What `run` returns, and the operations it took; with `block`, all of its stacks of matrices are to be read."""
    with Count() as count:
        result = run()
    missed = [f"the kernel {each}" for each in count.unknown]
    if block is not None and count.operations:
        missed += [f"a kernel that torch does not see, which alone reads {name}" for name in count.unread(block)]
    if missed:
        raise MeasureError(
            f"the cost of {stack.source.name} cannot be counted: {where} runs {missed[0]}, whose operations are not "
            'known; load the model with attn_implementation="eager" and experts_implementation="eager", or give its '
            "cost as a ModelCost"
        )
    return result, count.operations


def _weights_twice(stack: Stack, layer: int) -> int:
    return 2 * sum(parameter.numel() for parameter in stack.block(layer).parameters())
