"""Augmentation: small changes to a training image that leave its label true.

    none        the image as it is
    crop        shifted by at most an eighth of its side, up, down and sideways; what comes in from outside is 0
    crop+flip   also mirrored left to right, every second time (wrong for digits and letters)

Every draw comes from torch's global generator, one that the Trainer saves with a checkpoint and seeds on each
rank: a resumed run sees the images it would have seen.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from layerwise.errors import DataError, near_matches

AUGMENTATIONS = ("none", "crop", "crop+flip")

_REACH = 8
"""A shift is at most one part in so many of the side: 1 pixel of 8, 4 of 32 (He et al. 2016, section 4.2)."""


def check_augmentation(name: str) -> str:
    """`name` itself. Raises `DataError` for a name that is not in `AUGMENTATIONS`."""
    if name not in AUGMENTATIONS:
        raise DataError(f"unknown augmentation {name!r}; {near_matches(name, AUGMENTATIONS)}")
    return name


def augmented(pixels: Tensor, name: str) -> Tensor:
    """The image `pixels` of shape (channels, height, width) after the augmentation called `name`, same shape."""
    if name == "none":
        return pixels
    shifted = _shifted(pixels)
    mirrored = name == "crop+flip" and bool(torch.rand(()) < 0.5)
    return shifted.flip(-1) if mirrored else shifted


def _shifted(pixels: Tensor) -> Tensor:
    height, width = pixels.shape[-2:]
    down, right = max(1, height // _REACH), max(1, width // _REACH)
    top = int(torch.randint(2 * down + 1, ()))
    left = int(torch.randint(2 * right + 1, ()))
    return pad(pixels, (right, right, down, down))[..., top : top + height, left : left + width]
