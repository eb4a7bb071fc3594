"""Send blocks of a model as a message, and rebuild them on a node.

Nothing is unpickled, and only classes from transformers and layerwise are built, so a message cannot run other code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import torch
from torch import nn

from layerwise.errors import SwarmError
from layerwise.plan.checks import SUBLAYERS
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.streaming.resident import hold
from layerwise.swarm.messages import Array, LoadLayers
from layerwise.swarm.wire import to_array, to_tensor

_PACKAGES = ("transformers", "layerwise")

# Private attributes of a configuration that its JSON omits.
_IMPLEMENTATIONS = ("_attn_implementation", "_experts_implementation")


def load_message(stack: Stack, layers: Iterable[int], source: str = "", *, sublayers: bool = False) -> LoadLayers:
    """Build the message that sends `layers` to a node. If `sublayers`, it includes the paths of their sublayers.

    Raises `SwarmError` if the model has no configuration or is not from transformers or layerwise.
    """
    model: Any = stack.model
    kind = type(model)
    config = getattr(model, "config", None)
    if config is None or kind.__module__.partition(".")[0] not in _PACKAGES:
        raise SwarmError(
            f"{kind.__module__}.{kind.__qualname__} cannot be built on another machine. Nodes build only models of "
            f"{' and '.join(_PACKAGES)} that have a configuration. Run the nodes in this process instead: "
            "layerwise.swarm.gather(stack, nodes=4)."
        )
    layers = tuple(layers)
    implementations = {name: getattr(config, name, None) for name in _IMPLEMENTATIONS}
    content = {
        "config": config.to_dict(),
        "implementations": implementations,
        "dtype": str(stack.dtype).removeprefix("torch."),
    }
    pairs = stack.branches().paths if sublayers else ()
    return LoadLayers(
        source,
        f"{kind.__module__}:{kind.__qualname__}",
        json.dumps(content, default=str),
        stack.path,
        layers,
        tuple(_weights(stack.block(layer)) for layer in layers),
        tuple(tuple((name, pairs[layer][name]) for name in SUBLAYERS) for layer in layers) if sublayers else (),
    )


def byte_count(block: nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in (*block.parameters(), *block.buffers()))


def build_blocks(message: LoadLayers, device: torch.device | str) -> tuple[list[nn.Module], Any]:
    """Build the blocks and the configuration in a message. Raises `SwarmError` for other classes or missing weights."""
    module, _, name = message.model_class.partition(":")
    if module.partition(".")[0] not in _PACKAGES:
        raise SwarmError(f"Model classes must be from {' or '.join(_PACKAGES)}, got {module}.")
    kind: Any = getattr(import_module(module), name)
    content = json.loads(message.config)
    config = kind.config_class.from_dict(content["config"])
    for implementation, value in content["implementations"].items():
        if value is not None:
            setattr(config, implementation, value)
    with torch.device("meta"):
        model = kind(config)
    model.to(getattr(torch, content["dtype"]))
    blocks = block_list(model, message.path)
    for layer, weights in zip(message.layers, message.weights, strict=True):
        _fill(blocks[layer], dict(weights), device, f"layer {layer} of {name}")
    return [blocks[layer].eval().requires_grad_(False) for layer in message.layers], config


def _weights(block: nn.Module) -> tuple[tuple[str, Array], ...]:
    hold(block)
    stored = {**dict(block.named_parameters()), **dict(block.named_buffers())}
    return tuple((name, to_array(tensor)) for name, tensor in stored.items())


def _fill(block: nn.Module, weights: dict[str, Array], device: torch.device | str, what: str) -> None:
    for name, array in weights.items():
        owner, _, leaf = name.rpartition(".")
        holder = block.get_submodule(owner)
        tensor = to_tensor(array, device)
        if leaf in holder._parameters:
            holder._parameters[leaf] = nn.Parameter(tensor, requires_grad=False)
        else:
            holder._buffers[leaf] = tensor
    missing = [
        name for name, tensor in (*block.named_parameters(), *block.named_buffers()) if tensor.device.type == "meta"
    ]
    missing += [
        f"{path}.{name}"
        for path, module in block.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor) and value.device.type == "meta"
    ]
    if missing:
        raise SwarmError(
            f"The message lacks weights of {what}: {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}."
        )
