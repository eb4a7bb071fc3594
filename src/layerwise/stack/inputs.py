"""Prepare the inputs of a model, build example inputs, and find the main output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from transformers import Cache

from layerwise.errors import ModelError
from layerwise.stack.checks.forward_trace import tensors
from layerwise.stack.configuration import is_of_transformers
from layerwise.stack.placement import device_of, dtype_of

CACHES = ("past_key_values", "past_key_value", "cache_params", "mems")
"""Names of the arguments with which models accept a cache of earlier tokens."""


def refuse_caches(inputs: Mapping[str, Any]) -> None:
    for name, value in inputs.items():
        if isinstance(value, Cache) or (name in CACHES and value is not None):
            raise ModelError(
                f"{name} must not be among the inputs, because every plan that runs on them would extend the cache. "
                "Pass all tokens at once, or call the model in `with stack.under(plan)`."
            )


def on_device(inputs: Any, device: torch.device) -> Any:
    def move(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(device)
        if isinstance(value, Mapping):  # BatchEncoding.to works in place
            return type(value)({name: on_device(each, device) for name, each in value.items()})  # type: ignore[call-arg]
        return value

    # All weights of the model may be on disk.
    return inputs if device.type == "meta" else tree_map(move, inputs)


def accepted(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Move `inputs` to the model's device, and add `use_cache=False` if the model accepts it."""
    given: dict[str, Any] = on_device(dict(inputs), device_of(model))
    parameters = inspect.signature(model.forward).parameters
    config: Any = getattr(model, "config", None)
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    knows = is_of_transformers(config) and hasattr(config.get_text_config(), "use_cache")
    return {**given, "use_cache": False} if "use_cache" in parameters or (open_ended and knows) else given


def main_tensor(output: Any) -> Tensor:
    if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor):
        return output["logits"]
    for tensor in tensors(output):
        return tensor
    raise ModelError(f"the model must return a tensor, got {type(output).__name__}")


def example_inputs(model: nn.Module, length: int = 12) -> dict[str, Tensor] | None:
    """Return a batch of two random inputs with a fixed seed, or None if inputs of `model` cannot be generated.

    Token ids have the shape `(2, length)`, or `(2, 2, length)` for multiple choice. The shapes of images, audio
    features and waveforms follow from the configuration.
    """
    number = _SELECTED.get(model, 0)
    return None if number is None else next(islice(example_batches(model, length), number, None), None)


def use_examples(model: nn.Module, number: int | None) -> None:
    """Make `example_inputs` return batch `number` of `example_batches`. If `number` is None, it returns None."""
    _SELECTED[model] = number


def example_batches(model: nn.Module, length: int = 12) -> Iterator[dict[str, Tensor]]:
    config: Any = getattr(model, "config", None)
    taken = inspect.signature(model.forward).parameters
    main = str(getattr(model, "main_input_name", ""))
    if not is_of_transformers(config) or main not in _MAKERS:
        return
    maker = _Examples(model, config, length)
    batch = maker.make(main)
    if batch is not None:
        yield maker.placed(batch)
        if "decoder_input_ids" in taken and main != "decoder_input_ids":
            yield maker.placed({**batch, "decoder_input_ids": maker.tokens()})
    if batch is not None and main == "input_ids":  # a classifier may read the state of the final token
        yield maker.placed({main: maker.ended(batch[main])})
    images = maker.make("pixel_values") if main == "input_ids" and "pixel_values" in taken else None
    if batch is not None and images is not None:
        yield maker.placed({**batch, **images, "input_ids": maker.tokens_with_images(images)})


@dataclass(frozen=True)
class _Examples:
    model: nn.Module
    config: Any
    length: int
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def make(self, name: str) -> dict[str, Tensor] | None:
        try:
            made = _MAKERS[name](self)
        except (AttributeError, TypeError, ValueError):  # the configuration does not describe such inputs
            return None
        return None if made is None else {name: made}

    def placed(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        device, dtype = device_of(self.model), dtype_of(self.model)
        return {name: each.to(device, dtype if each.is_floating_point() else None) for name, each in batch.items()}

    def tokens(self) -> Tensor:
        choices = any("MultipleChoice" in type(module).__name__ for module in self.model.modules())
        shape = (2, 2, self.length) if choices else (2, self.length)
        return torch.randint(0, self.config.get_text_config().vocab_size, shape, generator=self.generator, device="cpu")

    def ended(self, ids: Tensor) -> Tensor:
        end = self.config.get_text_config().eos_token_id
        end = end if isinstance(end, int) else 0
        return torch.cat([torch.where(ids == end, end + 1, ids), torch.full_like(ids[..., :1], end)], dim=-1)

    def pixels(self) -> Tensor | None:
        config = getattr(self.config, "vision_config", self.config)
        size = getattr(config, "image_size", None)
        if size is None:
            return None
        height, width = size if isinstance(size, tuple | list) else (size, size)
        frames = (config.num_frames,) if hasattr(config, "num_frames") else ()
        return self._noise(2, *frames, getattr(config, "num_channels", 3), height, width)

    def features(self) -> Tensor:
        config = getattr(self.config, "audio_config", self.config)
        if hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions"):
            return self._noise(2, config.num_mel_bins, 2 * config.max_source_positions)
        width = getattr(config, "feature_projection_input_dim", None) or config.input_feat_per_channel
        return self._noise(2, 4 * self.length, width * getattr(config, "input_channels", 1))

    def waveform(self) -> Tensor:
        if hasattr(self.config, "num_mel_bins") and hasattr(self.config, "max_length"):
            return self._noise(2, self.config.max_length, self.config.num_mel_bins)
        samples = prod(self.config.conv_stride) * self.length + sum(self.config.conv_kernel)
        return self._noise(2, samples)

    def tokens_with_images(self, images: Mapping[str, Tensor]) -> Tensor:
        ids = self.tokens()
        names = ("image_token_id", "image_token_index")
        marker = next((value for name in names if isinstance(value := getattr(self.config, name, None), int)), None)
        if marker is None or not hasattr(self.model, "get_image_features"):
            return ids
        ids[ids == marker] = 0 if marker else 1
        with evaluating(self.model), torch.no_grad():
            features = self.model.get_image_features(**self.placed(images))  # type: ignore[operator]
        vectors = getattr(features, "pooler_output", features)
        count = sum(each.numel() // each.shape[-1] for each in tensors(vectors)) // len(ids)
        return torch.cat([torch.full((len(ids), count), marker, device="cpu"), ids], dim=1)

    def _noise(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device="cpu")


_MAKERS: Mapping[str, Callable[[_Examples], Tensor | None]] = {
    "input_ids": _Examples.tokens,
    "pixel_values": _Examples.pixels,
    "pixel_values_videos": _Examples.pixels,
    "input_features": _Examples.features,
    "input_values": _Examples.waveform,
}
_SELECTED: WeakKeyDictionary[nn.Module, int | None] = WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode, and restore the mode of every module afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
