"""Image models and image folders that train in a second."""

from pathlib import Path

import torch
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification

DEPTH = 3
CLASSES = ("circle", "square")


def tiny_vit(classes: int = 10, depth: int = DEPTH, seed: int = 0, spread: float = 0.2) -> ViTForImageClassification:
    torch.manual_seed(seed)
    config = ViTConfig(
        image_size=8,
        patch_size=4,
        num_channels=1,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=depth,
        num_attention_heads=2,
        num_labels=classes,
        initializer_range=spread,
    )
    return ViTForImageClassification(config)


def save_vit(folder: Path, classes: int = 10, depth: int = DEPTH, seed: int = 0) -> Path:
    tiny_vit(classes, depth, seed).save_pretrained(folder)
    return folder


def save_images(folder: Path, count: int = 40) -> Path:
    pixels = torch.randint(0, 256, (2, count, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    for name, images in zip(CLASSES, pixels, strict=True):
        (folder / name).mkdir(parents=True)
        for number, image in enumerate(images):
            Image.fromarray(image.numpy()).save(folder / name / f"{number:02}.png")
    return folder
