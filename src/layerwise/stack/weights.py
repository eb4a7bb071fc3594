"""The weights of single layers: read in place, replaced for one call, or initialized again."""

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
    """The parameters of one layer by their path inside the block, detached and as they are stored: nothing is copied.

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
    """`layer_weights(stack, layer)[name][start:stop]`; of a layer on the disk these rows are read and nothing else."""
    if stack.resident is not None:
        return stack.resident.stored(layer, name, slice(start, stop))
    return layer_weights(stack, layer)[name][start:stop]


def apply_with(stack: Stack, layer: int, weights: Weights, state: Tensor, captured: Capture) -> Tensor:
    block = block_list(stack.model, stack.path)[layer]
    hold(block)  # before others take the place of its weights
    args, kwargs = stack.call(layer, state, captured)
    return stack.note(layer, state, stack.returned(functional_call(block, dict(weights), args, kwargs)))


def random_twin(stack: Stack, seed: int) -> Stack:
    """Return a randomly initialized model with the same configuration, fixed by `seed`; the null for trained models.

    Raises `UnsupportedModelError` for other than transformers models, and for shapes that differ from the
    configuration.
    """
    model = stack.model
    refuse_on_disk(model, "draw a randomly initialised twin")
    refuse_quantized(model, "draw a randomly initialised twin")
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a transformers model, so its initialisation is not known and it has no "
            "randomly initialised twin"
        )
    # Drawn on the CPU in float32, so that the twin is the same whatever the device and dtype of the model. The
    # generators of accelerators, which `torch.manual_seed` would seed as well, stay as they are.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        fresh = type(model)(copy.deepcopy(model.config)).to(device=stack.device, dtype=stack.dtype).eval()
    own, drawn = ([tuple(weight.shape) for weight in each.parameters()] for each in (model, fresh))
    if own != drawn:
        raise UnsupportedModelError(
            f"{type(model).__name__} has weights of other shapes than its configuration describes (it was pruned or "
            "edited), so a model drawn from the configuration is not its twin"
        )
    made = Stack(
        fresh, stack.path, tokenizer=stack.tokenizer, source=ModelOrigin(f"{stack.source.name} (randomly initialised)")
    )
    inputs = example_inputs(fresh)
    if inputs is not None:
        made.inspect(**inputs)
    return made
