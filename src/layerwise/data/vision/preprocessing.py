"""Preprocessing: from an image of any size to the pixels a model was trained on.

A checkpoint says how in its `preprocessor_config.json`, and transformers' own image processor makes the pixels; it is
tried on two images, so that they come out in one size, and as bytes that are scaled afterwards. Without settings images
have the size in the config and values between -1 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image
from torch import Tensor
from transformers.utils import cached_file

from layerwise.bounded import shortened
from layerwise.data.auto_classes import from_pretrained
from layerwise.data.vision.image_examples import Scaling
from layerwise.errors import DataError, ModelError

_TOP = 255
_SETTINGS = ("preprocessor_config.json", "processor_config.json")
_TRIED_ON = ((97, 131), (120, 61))


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Preprocessing of an image: to `height` x `width` pixels in `channels` (1 or 3), each (x / 255 - mean) / std.

    The bytes come from transformers' `processor`, or without one from the resized image.
    """

    height: int
    width: int
    channels: int = 3
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    processor: Any = None

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise ModelError(
                f"the model takes images of {self.channels} channels: layerwise reads grey images (1) and colour (3); "
                "use a model of either"
            )
        if not len(self.mean) == len(self.std) == self.channels:
            raise ModelError(
                f"images of {self.channels} channels need as many means and deviations; found {len(self.mean)} and "
                f"{len(self.std)}: correct image_mean and image_std in the model's {_SETTINGS[0]}"
            )

    @property
    def bytes(self) -> int:
        return self.channels * self.height * self.width

    @property
    def scaling(self) -> Scaling:
        return Scaling(self.mean, self.std, _TOP)

    def pixels(self, image: Image.Image) -> Tensor:
        """Return pixels before scaling, uint8 (channels, height, width); raises `DataError` if the processor fails."""
        plain = image.convert("L" if self.channels == 1 else "RGB")
        if self.processor is not None:
            return _processed(self.processor, plain, do_rescale=False, do_normalize=False)
        small = torch.from_numpy(numpy.array(plain.resize((self.width, self.height), Image.Resampling.BILINEAR)))
        return small.reshape(self.height, self.width, self.channels).permute(2, 0, 1).contiguous()


def preprocessing_of(config: Any, where: str | Path | None = None, *, trust_remote_code: bool = False) -> Preprocessing:
    """Return the preprocessing of a model with this `config` and checkpoint `where` (folder or hub id).

    Without settings there: config.image_size, config.num_channels, mean = std = 0.5. Raises `ModelError` for a model
    without fixed image size, unreadable settings, a processor with its own code unless `trust_remote_code`, and one
    that gives no bytes of one size.
    """
    if where is None or not _has_settings(where):
        height, width = _image_size(config)
        channels = _channels(config)
        return Preprocessing(height, width, channels, (0.5,) * channels, (0.5,) * channels)
    try:
        # The other backend needs torchvision, which layerwise does not.
        processor = from_pretrained("AutoImageProcessor", where, trust_remote_code=trust_remote_code, backend="pil")
        return _tried(processor, _channels(config), where)
    except ModelError:
        raise
    except Exception as error:  # transformers and its processors raise whatever wrong settings make them trip over
        reason = shortened(str(error).strip().split("\n")[0], 160)
        raise ModelError(
            f"cannot read how {where} wants its images prepared: {reason}; correct its {_SETTINGS[0]}, or remove it to "
            "have images scaled to between -1 and 1"
        ) from error


def _has_settings(where: str | Path) -> bool:
    folder = Path(where)
    if folder.is_dir():
        return any((folder / name).is_file() for name in _SETTINGS)
    paths = (cached_file(str(where), name, _raise_exceptions_for_missing_entries=False) for name in _SETTINGS)
    return any(path is not None for path in paths)


def _image_size(config: Any) -> tuple[int, int]:
    size = getattr(config, "image_size", None)
    if size is None:
        raise ModelError(
            f"a model of type {getattr(config, 'model_type', type(config).__name__)!r} names no image_size in its "
            "config: give a model of images, or texts (--text) instead of images"
        )
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return int(height), int(width)


def _channels(config: Any) -> int:
    return int(getattr(config, "num_channels", 3))


def _processed(processor: Any, image: Image.Image, **switches: bool) -> Tensor:
    try:
        return torch.from_numpy(numpy.ascontiguousarray(processor(image, **switches)["pixel_values"][0]))
    except Exception as error:  # processors raise whatever an image of an odd size makes them trip over
        reason = shortened(str(error).strip().split("\n")[0], 160) or type(error).__name__
        raise DataError(
            f"the model's image processor cannot prepare an image of {image.width} x {image.height} pixels ({reason}); "
            "give it a more usual size, or remove it"
        ) from error


def _tried(processor: Any, channels: int, where: str | Path) -> Preprocessing:
    draw = torch.Generator().manual_seed(0)
    tried = [
        torch.randint(256, (*size, 3), generator=draw, dtype=torch.uint8, device="cpu").numpy() for size in _TRIED_ON
    ]
    images = [Image.fromarray(values).convert("L" if channels == 1 else "RGB") for values in tried]
    # The processor computes (x * factor - mean) / std; ours divides x by 255.
    factor = (processor.rescale_factor if getattr(processor, "do_rescale", None) else 1.0) * _TOP
    is_scaled = bool(getattr(processor, "do_normalize", None))
    mean = _per_channel(processor.image_mean, channels) if is_scaled else (0.0,) * channels
    std = _per_channel(processor.image_std, channels) if is_scaled else (1.0,) * channels
    mean, std = (tuple(value / factor for value in values) for values in (mean, std))
    preprocessing = Preprocessing(0, 0, channels, mean, std, processor)
    expected = [_processed(processor, image).float() for image in images]
    made = [preprocessing.pixels(image) for image in images]
    if expected[0].shape != expected[1].shape:
        raise ModelError(
            "images would be resized to sizes that depend on the image: layerwise makes batches of one size, so write "
            f'{{"height": ..., "width": ...}} as the size in the model\'s {_SETTINGS[0]}'
        )
    for values, own in zip(expected, made, strict=True):
        is_plain = own.dtype == torch.uint8 and own.dim() == 3 and own.shape == values.shape and len(own) == channels
        if not is_plain or not torch.allclose(preprocessing.scaling(own), values, rtol=1e-4, atol=1e-4):
            raise ModelError(
                f"the image processor of {where}, {type(processor).__name__}, does more to an image than make bytes of "
                "it and scale them: its values are not those of layerwise; use a model with a plainer processor"
            )
    height, width = made[0].shape[1:]
    return Preprocessing(height, width, channels, mean, std, processor)


def _per_channel(value: Any, channels: int) -> tuple[float, ...]:
    return (float(value),) * channels if isinstance(value, int | float) else tuple(float(each) for each in value)
