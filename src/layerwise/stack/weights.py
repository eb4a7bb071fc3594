"""Read, replace or reinitialize the weights of single layers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import functional_call
from transformers import PreTrainedModel

from layerwise.errors import UnsupportedModelError
from layerwise.stack.blocks import block_list
from layerwise.stack.inputs import example_inputs
from layerwise.stack.quantization import refuse_quantized
from layerwise.stack.stack import ModelOrigin, Stack
from layerwise.stack.streaming.resident import hold, refuse_on_disk

if TYPE_CHECKING:
    from layerwise.stack.executors.capture import Capture

Weights = Mapping[str, Tensor]


def layer_weights(stack: Stack, layer: int) -> dict[str, Tensor]:
    """Return the detached parameters of one layer by their path inside the block, without copying.

    >>> from layerwise.stack import load
    >>> sorted(layer_weights(load("demo"), 0))[:2]
    ['input_layernorm.weight', 'mlp.down_proj.weight']
    """
    block = block_list(stack.model, stack.path)[layer]
    refuse_quantized(block, "compare or change weights")
    hold(block)
    if stack.resident is None:
        refuse_on_disk(block, "compare or change weights")
    return {name: parameter.detach() for name, parameter in block.named_parameters()}


def weight_rows(stack: Stack, layer: int, name: str, start: int, stop: int) -> Tensor:
    """Return rows `start` to `stop` of a parameter of a layer, reading only these rows from disk."""
    if stack.resident is not None:
        return stack.resident.stored(layer, name, slice(start, stop))
    return layer_weights(stack, layer)[name][start:stop]


def apply_with(stack: Stack, layer: int, weights: Weights, state: Tensor, captured: Capture) -> Tensor:
    block = block_list(stack.model, stack.path)[layer]
    hold(block)  # before its weights are replaced
    args, kwargs = stack.call(layer, state, captured)
    return stack.note(layer, state, stack.returned(functional_call(block, dict(weights), args, kwargs)))


def make_random_init(stack: Stack, seed: int) -> Stack:
    """Return a randomly initialized model with the same configuration and the given seed.

    Raises `UnsupportedModelError` unless it is a transformers model whose shapes match its configuration.
    """
    model = stack.model
    refuse_on_disk(model, "draw a randomly initialized model")
    refuse_quantized(model, "draw a randomly initialized model")
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a transformers model, so its initialization is unknown"
        )
    # Drawn on the CPU in float32, independent of device and dtype. `torch.manual_seed` would also seed accelerators.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        fresh = type(model)(copy.deepcopy(model.config)).to(device=stack.device, dtype=stack.dtype).eval()
    shapes, drawn = ([tuple(weight.shape) for weight in each.parameters()] for each in (model, fresh))
    if shapes != drawn:
        raise UnsupportedModelError(
            f"{type(model).__name__} has weights whose shapes differ from its configuration (it was pruned or edited), "
            "so a randomly initialized model is not comparable"
        )
    made = Stack(
        fresh, stack.path, tokenizer=stack.tokenizer, source=ModelOrigin(f"{stack.source.name} (randomly initialized)")
    )
    inputs = example_inputs(fresh)
    if inputs is not None:
        made.inspect(**inputs)
    return made
