"""Pixels: labelled images in memory, one byte a value, turned into what a model takes when they are read.

A byte x becomes (x / top - mean) / std in its channel, where `top` is the largest byte (255 for photographs). Kept as
bytes, 60,000 images of 32 x 32 in colour need 184 MB, a quarter of what they need as floats.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from layerwise.data.splits import Example, Examples
from layerwise.data.vision.augmentation import augmented, check_augmentation


class Pixels(Examples):
    """Images `pixels`, uint8 of shape (images, channels, height, width), with `labels`, int64 of shape (images,).

    With `rows`, int64 of the shape of `labels`, image i is `pixels[rows[i]]`: several splits are of one array, which
    may lie on the disk.
    """

    def __init__(
        self,
        pixels: Tensor,
        labels: Tensor,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        top: int = 255,
        augmentation: str = "none",
        rows: Tensor | None = None,
    ) -> None:
        self._all = pixels
        self._rows = torch.arange(len(labels)) if rows is None else rows
        self.labels = labels
        self.augmentation = check_augmentation(augmentation)
        self._scaling = Scaling(mean, std, top)

    @property
    def pixels(self) -> Tensor:
        """A copy of all images, uint8 of shape (images, channels, height, width)."""
        return self._all[self._rows]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Example:
        pixels = augmented(self._all[int(self._rows[index])], self.augmentation)
        return {"pixel_values": self._scaling(pixels), "labels": self.labels[index]}


class Scaling:
    """From bytes to what the model takes: (x / top - mean) / std, channel by channel, in float32."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], top: int = 255) -> None:
        self._mean = torch.tensor(mean).reshape(-1, 1, 1)
        self._std = torch.tensor(std).reshape(-1, 1, 1)
        self._top = top

    def __call__(self, pixels: Tensor) -> Tensor:
        """Float32 of the shape of `pixels`, (..., channels, height, width)."""
        return (pixels.float() / self._top - self._mean) / self._std
