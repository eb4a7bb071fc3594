"""Image preprocessing and augmentation.

If the checkpoint has a `preprocessor_config.json`, the image processor of transformers computes the pixels. It must
return pixels of one size that are bytes before scaling, which is checked on two images. Otherwise, images have the size
in the config and values between -1 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad
from transformers.utils import cached_file

from layerwise.bounded import shortened
from layerwise.data.auto_classes import from_pretrained
from layerwise.data.splits import Example, Examples
from layerwise.errors import DataError, ModelError

Augmentation = Literal["none", "crop", "crop+flip"]
"""Augmentation of training images: shifts by at most an eighth of the side (padded with 0), and horizontal flips.

It uses torch's global generator, which checkpoints save, so resumed runs see the same images.
"""

_REACH = 8


class ImageExamples(Examples):
    """Images with `labels`, int64 (images,). `read(n)` returns image n as uint8 (channels, height, width)."""

    def __init__(
        self, labels: Tensor, read: Callable[[int], Tensor], scaling: Scaling, augmentation: Augmentation = "none"
    ) -> None:
        self.labels = labels
        self.read = read
        self.augmentation = augmentation
        self._scaling = scaling

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Example:
        pixels = augment(self.read(index), self.augmentation)
        return {"pixel_values": self._scaling(pixels), "labels": self.labels[index]}


class Scaling:
    """Scales bytes to (x / top - mean) / std per channel, in float32."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], top: int = 255) -> None:
        self._mean = torch.tensor(mean, device="cpu").reshape(-1, 1, 1)
        self._std = torch.tensor(std, device="cpu").reshape(-1, 1, 1)
        self._top = top

    def __call__(self, pixels: Tensor) -> Tensor:
        return (pixels.float() / self._top - self._mean) / self._std


def augment(pixels: Tensor, name: str) -> Tensor:
    if name == "none":
        return pixels
    height, width = pixels.shape[-2:]
    down, right = max(1, height // _REACH), max(1, width // _REACH)
    top = int(torch.randint(2 * down + 1, (), device="cpu"))
    left = int(torch.randint(2 * right + 1, (), device="cpu"))
    shifted = pad(pixels, (right, right, down, down))[..., top : top + height, left : left + width]
    mirrored = name == "crop+flip" and bool(torch.rand((), device="cpu") < 0.5)
    return shifted.flip(-1) if mirrored else shifted


_TOP = 255
_SETTINGS = ("preprocessor_config.json", "processor_config.json")
_TRIED_ON = ((97, 131), (120, 61))


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Converts images to `height` x `width` pixels in `channels` (1 or 3), scaled to (x / 255 - mean) / std.

    The pixels come from transformers' `processor`. If there is none, images are resized.
    """

    height: int
    width: int
    channels: int = 3
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    processor: Any = None

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise ModelError(f"The model must take images of 1 (gray) or 3 channels (color), got {self.channels}.")
        if not len(self.mean) == len(self.std) == self.channels:
            raise ModelError(
                f"image_mean and image_std in the model's {_SETTINGS[0]} must have {self.channels} values, one per "
                f"channel, got {len(self.mean)} and {len(self.std)}."
            )

    @property
    def bytes(self) -> int:
        return self.channels * self.height * self.width

    @property
    def scaling(self) -> Scaling:
        return Scaling(self.mean, self.std, _TOP)

    def pixels(self, image: Image.Image) -> Tensor:
        """Return unscaled pixels, uint8 (channels, height, width). Raises `DataError` if the processor fails."""
        plain = image.convert("L" if self.channels == 1 else "RGB")
        if self.processor is not None:
            return _processed(self.processor, plain, do_rescale=False, do_normalize=False)
        small = torch.from_numpy(numpy.array(plain.resize((self.width, self.height), Image.Resampling.BILINEAR)))
        return small.reshape(self.height, self.width, self.channels).permute(2, 0, 1).contiguous()


def load_preprocessing(
    config: Any, where: str | Path | None = None, *, trust_remote_code: bool = False
) -> Preprocessing:
    """Load the preprocessing of a model. `where` is the directory or hub id of its checkpoint.

    If the checkpoint has no settings, the size and channels are config.image_size and config.num_channels, and mean =
    std = 0.5. Raises `ModelError` if the model has no fixed image size, if the settings are invalid, or if the
    processor does not return bytes of one size. Processors with remote code require `trust_remote_code`.
    """
    if where is None or not _has_settings(where):
        height, width = _image_size(config)
        channels = _channels(config)
        return Preprocessing(height, width, channels, (0.5,) * channels, (0.5,) * channels)
    try:
        # The other backend requires torchvision.
        processor = from_pretrained("AutoImageProcessor", where, trust_remote_code=trust_remote_code, backend="pil")
        return _tried(processor, _channels(config), where)
    except ModelError:
        raise
    except Exception as error:  # invalid settings raise many errors in transformers
        reason = shortened(str(error).strip().split("\n")[0].split(". ")[0].rstrip("."), 160)
        raise ModelError(
            f"Cannot load the image processor of {where}: {reason}. Correct its {_SETTINGS[0]}, or remove it to scale "
            "images to between -1 and 1."
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
            f"The config of a {getattr(config, 'model_type', type(config).__name__)!r} model has no image_size. Pass a "
            "vision model, or --text instead of images."
        )
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return int(height), int(width)


def _channels(config: Any) -> int:
    return int(getattr(config, "num_channels", 3))


def _processed(processor: Any, image: Image.Image, **switches: bool) -> Tensor:
    try:
        return torch.from_numpy(numpy.ascontiguousarray(processor(image, **switches)["pixel_values"][0]))
    except Exception as error:  # unusual sizes raise many errors in image processors
        reason = shortened(str(error).strip().split("\n")[0].split(". ")[0].rstrip("."), 160) or type(error).__name__
        raise DataError(
            f"the model's image processor cannot process an image of {image.width} x {image.height} pixels ({reason})"
        ) from error


def _tried(processor: Any, channels: int, where: str | Path) -> Preprocessing:
    draw = torch.Generator().manual_seed(0)
    tried = [
        torch.randint(256, (*size, 3), generator=draw, dtype=torch.uint8, device="cpu").numpy() for size in _TRIED_ON
    ]
    images = [Image.fromarray(values).convert("L" if channels == 1 else "RGB") for values in tried]
    # The processor computes (x * factor - mean) / std; `Scaling` divides x by 255.
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
            f'size in the model\'s {_SETTINGS[0]} must be {{"height": ..., "width": ...}}, since all images of a batch '
            "have one size."
        )
    for values, own in zip(expected, made, strict=True):
        is_plain = own.dtype == torch.uint8 and own.dim() == 3 and own.shape == values.shape and len(own) == channels
        if not is_plain or not torch.allclose(preprocessing.scaling(own), values, rtol=1e-4, atol=1e-4):
            raise ModelError(
                f"The image processor of {where} must only resize and scale images, got {type(processor).__name__} "
                "with other values. Use another model."
            )
    height, width = made[0].shape[1:]
    return Preprocessing(height, width, channels, mean, std, processor)


def _per_channel(value: Any, channels: int) -> tuple[float, ...]:
    return (float(value),) * channels if isinstance(value, int | float) else tuple(float(each) for each in value)
