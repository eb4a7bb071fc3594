"""The 1,797 handwritten digits of 8 x 8 pixels from scikit-learn, which train and evaluate `demo-vit`.

The split is fixed: 60% training, 20% validation, 20% test. Source: E. Alpaydin and C. Kaynak, "Optical Recognition of
Handwritten Digits", UCI Machine Learning Repository, 1998.
"""

from __future__ import annotations

from functools import partial

import torch
from PIL import Image
from torch import Tensor

from layerwise.data.splits import SPLITS, Splits, digest, limit_stratified, split_stratified
from layerwise.data.vision.preprocessing import Augmentation, ImageExamples, Preprocessing, Scaling

SIDE = 8
CLASSES = tuple("0123456789")
DARKEST = 16
"""Value of a pixel full of ink; 0 is blank paper."""

# With mean and deviation 0.5, (x / 16 - mean) / std is x / 8 - 1.
PREPROCESSING = Preprocessing(SIDE, SIDE, channels=1, mean=(0.5,), std=(0.5,))

_SHARES = (0.6, 0.2, 0.2)
_SEED = 0
_WHITEST = 255


def digits(
    augmentation: Augmentation = "none",
    preprocessing: Preprocessing | None = None,
    *,
    limit: int | None = None,
    seed: int = 0,
) -> Splits:
    """Load the digits as float32 pixels x / 8 - 1 of shape (1, 8, 8), where x is the ink from 0 to 16.

    Args:
        augmentation: Augmentation of training examples.
        preprocessing: Preprocessing of a model that requires another size or number of channels.
        limit: Maximum images per split, balanced over classes.
        seed: Seed of the limit.

    Raises:
        DataError: If `limit` is less than one image per class.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    ink = torch.from_numpy(bunch.images).to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(bunch.target).long()
    cut = split_stratified(labels.tolist(), _SHARES, _SEED)
    parts = [tuple(part[index] for index in limit_stratified(labels[list(part)].tolist(), limit, seed)) for part in cut]
    prepared = preprocessing or PREPROCESSING
    fits = prepared.bytes == SIDE**2 and prepared.height == SIDE and prepared.processor is None
    pixels = ink if fits else torch.stack([prepared.pixels(_drawing(each)) for each in ink])

    scaling = Scaling(prepared.mean, prepared.std, DARKEST if fits else _WHITEST)
    train, validation, test = (
        ImageExamples(
            labels[list(part)],
            partial(torch.select, pixels[list(part)], 0),
            scaling,
            augmentation if split == "train" else "none",
        )
        for split, part in zip(SPLITS, parts, strict=True)
    )
    rows = (
        (split, CLASSES[int(labels[index])], ink[index].numpy().tobytes())
        for split, part in zip(SPLITS, parts, strict=True)
        for index in part
    )
    return Splits("digits", digest(rows), train, validation, test, CLASSES)


def _drawing(ink: Tensor) -> Image.Image:
    return Image.fromarray((ink[0].int() * _WHITEST // DARKEST).to(torch.uint8).numpy())
