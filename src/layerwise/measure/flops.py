"""What a model's layers cost: the floating-point operations of a forward pass, by layer, for one token.

A growth schedule is priced by three numbers of a model: what its layers, what comes before them (`embedding`) and what
comes after them (`head`) compute for a token. They are counted, not assumed: every part is run once on a small batch
under torch's own counter, which sees matrix products, convolutions and attention, and counts a multiply-add as two
operations. Attention is counted whole, future positions included, as kernels without a causal shortcut compute it; so
the cost of a token depends on the length of its text. Norms, activations and look-ups are not counted: they take time,
but hardly any operations.

A layer whose arithmetic the counter does not see, such as a kernel of somebody else's, is taken at twice its weights
(Kaplan et al. 2020, arXiv 2001.08361, section 2.1), which is what the counter finds for a dense layer without its
attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from layerwise.errors import MeasureError
from layerwise.plan.growth.cost import ModelCost
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating, example_inputs

_Result = TypeVar("_Result")


def model_cost(stack: Stack, length: int = 1) -> ModelCost:
    """FLOPs of the forward pass of one token of a text of `length`: of every layer, of the embedding and of the head.

    For a model of images the unit is an image, and `length` is not asked. Raises `MeasureError` for a model whose kind
    of input is not known.

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
        captured, embedding = _counted(lambda: stack.capture(**inputs))
        state = captured.state
        for layer in range(stack.depth):
            state, found = _counted(lambda layer=layer, state=state: stack.apply(layer, state, captured))  # type: ignore[misc]
            layers.append(found or _weights_twice(stack, layer) * units)
        _, around = _counted(lambda: stack.finish(state, captured.inputs))
    return ModelCost(
        layers=tuple(found / units for found in layers),
        embedding=embedding / units,
        head=(around - embedding) / units,
    )


def _counted(run: Callable[[], _Result]) -> tuple[_Result, int]:
    """What `run` returns, and the operations it took."""
    with FlopCounterMode(display=False) as counter:
        result = run()
    return result, counter.get_total_flops()


def _weights_twice(stack: Stack, layer: int) -> int:
    return 2 * sum(parameter.numel() for parameter in stack.block(layer).parameters())
