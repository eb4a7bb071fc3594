"""Labeled images, scaled and augmented on access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from layerwise.data.splits import Example, Examples

Augmentation = Literal["none", "crop", "crop+flip"]
"""Augmentation of training images: shifts by at most an eighth of the side (padded with 0), and horizontal flips.

It uses torch's global generator, which checkpoints save, so resumed runs see the same images.
"""

_REACH = 8


class ImageExamples(Examples):
    """Images with `labels`, int64 (images,); `read` returns image number n as uint8 (channels, height, width)."""

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
    """Scaling of bytes to (x / top - mean) / std per channel, in float32."""

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
