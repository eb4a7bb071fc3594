"""What goes into a model and what comes out: accepted keywords, example inputs, the main output."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache

from layerwise.errors import ModelError
from layerwise.stack.checks.forward_trace import tensors
from layerwise.stack.placement import device_of, dtype_of

CACHES = ("past_key_values", "past_key_value", "cache_params", "mems")
"""The keywords under which models take a cache of earlier tokens."""


def refuse_caches(inputs: Mapping[str, Any]) -> None:
    """Raise `ModelError` if `inputs` hold a cache of earlier tokens."""
    for name, value in inputs.items():
        if isinstance(value, Cache) or (name in CACHES and value is not None):
            raise ModelError(
                f"{name} must not be among the inputs of a captured batch: every run of the batch would extend the "
                "cache. Pass all tokens at once, or call the model in `with stack.under(plan)`."
            )


def accepted(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return `inputs` with `use_cache=False` if the model knows it: a captured batch must not hold a live cache."""
    parameters = inspect.signature(model.forward).parameters
    config = getattr(model, "config", None)
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    knows = config is not None and hasattr(config.get_text_config(), "use_cache")
    return {**inputs, "use_cache": False} if "use_cache" in parameters or (open_ended and knows) else dict(inputs)


def main_tensor(output: Any) -> Tensor:
    """The tensor a model is run for: its logits if it has a head, else the first tensor it returns."""
    if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor):
        return output["logits"]
    for tensor in tensors(output):
        return tensor
    raise ModelError(f"the model returned a {type(output).__name__} with no tensor in it")


def example_inputs(model: nn.Module, length: int = 12) -> dict[str, Tensor] | None:
    """Seeded batch: token ids `(2, length)`, pixels `(2, channels, height, width)`, or `None` for other inputs."""
    generator = torch.Generator().manual_seed(0)
    config = getattr(model, "config", None)
    wanted = getattr(model, "main_input_name", None)
    if config is None or wanted not in ("input_ids", "pixel_values"):
        return None
    if wanted == "input_ids":
        vocabulary = config.get_text_config().vocab_size
        ids = torch.randint(0, vocabulary, (2, length), generator=generator)
        return {"input_ids": ids.to(device_of(model))}
    size = getattr(config, "image_size", None)
    if size is None or hasattr(config, "num_frames"):
        return None
    height, width = size if isinstance(size, tuple | list) else (size, size)
    pixels = torch.randn(2, getattr(config, "num_channels", 3), height, width, generator=generator)
    return {"pixel_values": pixels.to(device_of(model), dtype_of(model))}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within the context the model is in evaluation mode; every module gets its own mode back."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
