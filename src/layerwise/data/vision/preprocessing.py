"""Preprocessing: from an image of any size to the pixels a model was trained on.

A model sees well only what looks like its training data: the same size, cut the same way, on the same scale. A
checkpoint says so in its `preprocessor_config.json`; `preprocessing_of` reads that through transformers' own image
processor, and tries it on one image, so that pixels here are pixels there or the model is refused. A checkpoint that
says nothing gets the size in its config and values between -1 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image
from torch import Tensor

from layerwise.bounded import shortened
from layerwise.data.auto_classes import from_pretrained
from layerwise.data.vision.pixels import Scaling
from layerwise.errors import ModelError

_TOP = 255
_SETTINGS = ("preprocessor_config.json", "processor_config.json")
_TRIED_ON = (97, 131)
"""The size of the image that a processor is tried on: neither square nor even, so that rounding shows."""


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """What is done to an image before a model sees it: resize, cut out the middle, scale.

    The model sees `height` x `width` pixels in `channels` (1 is grey, 3 is red, green and blue), each
    (x / 255 - mean) / std. Before that the image is resized with the filter `resample` (Pillow's name) to
    `resized`: a (height, width), or a number for the shorter side with the shape kept; `None` is the size that the
    model sees. What is larger than the model sees is cut off evenly, what is smaller is surrounded by 0.

    >>> Preprocessing(224, 224, resized=256).size_of(width=400, height=300)
    (341, 256)
    """

    height: int
    width: int
    channels: int = 3
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    resample: str = "bilinear"
    resized: int | tuple[int, int] | None = None

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
        """What one image takes in memory before it is scaled."""
        return self.channels * self.height * self.width

    @property
    def scaling(self) -> Scaling:
        """From the bytes of `pixels` to what the model takes."""
        return Scaling(self.mean, self.std, _TOP)

    def size_of(self, width: int, height: int) -> tuple[int, int]:
        """The (width, height) that an image of this size is resized to, before its middle is cut out."""
        if self.resized is None:
            return self.width, self.height
        if isinstance(self.resized, tuple):
            return self.resized[1], self.resized[0]
        shorter = min(width, height)
        return self.resized * width // shorter, self.resized * height // shorter

    def pixels(self, image: Image.Image) -> Tensor:
        """The image as the model sees it, before scaling: uint8 of shape (channels, height, width)."""
        plain = image.convert("L" if self.channels == 1 else "RGB")
        small = plain.resize(self.size_of(*plain.size), Image.Resampling[self.resample.upper()])
        left, top = (small.width - self.width) // 2, (small.height - self.height) // 2
        cut = small.crop((left, top, left + self.width, top + self.height))
        values = torch.from_numpy(numpy.array(cut))
        return values.reshape(self.height, self.width, self.channels).permute(2, 0, 1).contiguous()


def preprocessing_of(config: Any, where: str | Path | None = None, *, trust_remote_code: bool = False) -> Preprocessing:
    """How images are prepared for the model with this `config`, whose checkpoint lies at `where` (folder or hub id).

    Without a `where`, or where no settings lie beside the weights, the image has config.image_size and
    config.num_channels, and mean = std = 0.5. Raises `ModelError` for a model that takes no images of fixed size, for
    settings that cannot be read, for a processor whose code comes with the checkpoint, unless `trust_remote_code`, and
    for one whose pixels would not be those of `Preprocessing`.
    """
    if where is None or not _has_settings(where):
        height, width = _image_size(config)
        channels = _channels(config)
        return Preprocessing(height, width, channels, (0.5,) * channels, (0.5,) * channels)
    try:
        # The other backend needs torchvision, which layerwise does not.
        processor = from_pretrained("AutoImageProcessor", where, trust_remote_code=trust_remote_code, backend="pil")
        preprocessing = _settings(processor, config)
    except ModelError:
        raise
    except Exception as error:  # transformers and its processors raise whatever wrong settings make them trip over
        reason = shortened(str(error).strip().split("\n")[0], 160)
        raise ModelError(
            f"cannot read how {where} wants its images prepared: {reason}; correct its {_SETTINGS[0]}, or remove it to "
            "have images scaled to between -1 and 1"
        ) from error
    _refuse_other_pixels(preprocessing, processor, where)
    return preprocessing


def _has_settings(where: str | Path) -> bool:
    folder = Path(where)
    if folder.is_dir():
        return any((folder / name).is_file() for name in _SETTINGS)
    from transformers.utils import cached_file

    paths = (cached_file(str(where), name, _raise_exceptions_for_missing_entries=False) for name in _SETTINGS)
    return any(path is not None for path in paths)


def _image_size(config: Any) -> tuple[int, int]:
    """(height, width) of the images that the model was built for."""
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


def _settings(processor: Any, config: Any) -> Preprocessing:
    """The settings of a transformers image processor as one value."""
    channels = _channels(config)
    resized = _size(processor.size) if _is_on(processor, "do_resize") else None
    if _is_on(processor, "do_center_crop"):
        final = _size(processor.crop_size)
    else:
        final = resized if isinstance(resized, tuple) else _image_size(config)
    height, width = final if isinstance(final, tuple) else (final, final)
    # The processor computes (x * factor - mean) / std; ours divides x by 255.
    factor = (processor.rescale_factor if _is_on(processor, "do_rescale") else 1.0) * _TOP
    scaled = _is_on(processor, "do_normalize")
    mean = _per_channel(processor.image_mean, channels) if scaled else (0.0,) * channels
    std = _per_channel(processor.image_std, channels) if scaled else (1.0,) * channels
    return Preprocessing(
        height, width, channels,
        mean=tuple(value / factor for value in mean),
        std=tuple(value / factor for value in std),
        resample=Image.Resampling(processor.resample).name.lower() if processor.resample is not None else "bilinear",
        resized=None if resized == (height, width) else resized,
    )  # fmt: skip


def _is_on(processor: Any, switch: str) -> bool:
    return bool(getattr(processor, switch, None))


def _size(size: Any) -> int | tuple[int, int]:
    """(height, width), or the length of the shorter side."""
    sides = {key: size[key] for key in ("height", "width", "shortest_edge") if size[key] is not None}
    if "height" in sides and "width" in sides:
        return int(sides["height"]), int(sides["width"])
    if "shortest_edge" in sides:
        return int(sides["shortest_edge"])
    given = dict(size) if isinstance(size, Mapping) else size
    raise ModelError(
        f"images would be resized to {given}, which depends on the image: layerwise makes batches of one size, so "
        f'write {{"height": ..., "width": ...}} as the size in the model\'s {_SETTINGS[0]}'
    )


def _per_channel(value: Any, channels: int) -> tuple[float, ...]:
    return (float(value),) * channels if isinstance(value, int | float) else tuple(float(each) for each in value)


def _refuse_other_pixels(preprocessing: Preprocessing, processor: Any, where: str | Path) -> None:
    """Some processors do more than their settings say; a model must not be judged on images it was not made for."""
    noise = torch.randint(256, (*_TRIED_ON, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    image = Image.fromarray(noise.numpy())
    shown = image.convert("L") if preprocessing.channels == 1 else image
    expected = torch.as_tensor(numpy.array(processor(shown)["pixel_values"][0]))
    ours = preprocessing.scaling(preprocessing.pixels(image))
    if expected.shape != ours.shape or not torch.allclose(ours, expected.float(), rtol=1e-4, atol=1e-4):
        raise ModelError(
            f"the image processor of {where}, {type(processor).__name__}, does more to an image than resize it, cut "
            "out its middle and scale it: its pixels are not those of layerwise; use a model with a plainer processor"
        )
