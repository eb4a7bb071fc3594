"""Digits: 1,797 handwritten digits of 8 x 8 pixels, the image set that comes with scikit-learn.

Small enough for a transformer to learn in minutes on a processor without a graphics card, so `demo-vit` is trained
and judged on it. The split is part of the set: 60 % to train, 20 % to select, 20 % to report, drawn once for all with a
seed of its own, so that models trained with different seeds, on different days, are judged on the same images.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from layerwise.data.pixels import Pixels
from layerwise.data.splits import Splits, digest, stratified

SIDE = 8
CLASSES = tuple("0123456789")
DARKEST = 16
"""Ink is counted from 0 (paper) to 16."""

_SHARES = (0.6, 0.2, 0.2)
_SEED = 0


def digits(augmentation: str = "none") -> Splits:
    """The digits as float32 pixels x / 8 - 1 of shape (1, 8, 8), ink x from 0 to 16; the split is always the same.

    `augmentation` changes the training examples alone. Raises `DataError` for one that does not exist.
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = torch.from_numpy(found.images).to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(found.target).long()
    parts = stratified(labels.tolist(), _SHARES, _SEED)

    def examples(part: Sequence[int], augmentation: str = "none") -> Pixels:
        chosen = torch.tensor(part)
        # With mean and deviation 0.5, (x / 16 - mean) / std is x / 8 - 1.
        return Pixels(pixels[chosen], labels[chosen], mean=[0.5], std=[0.5], top=DARKEST, augmentation=augmentation)

    train, validation, test = parts
    names = ("train", "validation", "test")
    rows = (
        (split, CLASSES[int(labels[place])], pixels[place].numpy().tobytes())
        for split, part in zip(names, parts, strict=True)
        for place in part
    )
    return Splits("digits", digest(rows), examples(train, augmentation), examples(validation), examples(test), CLASSES)
