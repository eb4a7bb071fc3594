"""Vision transformers with random weights, with training records as if they had been trained."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import ViTConfig, ViTForImageClassification

from layerwise.results.training_record import TrainingRecord

DEPTH = 3


def save_vit(
    folder: Path, seed: int, arm: str | None, *, base: str = "base", data: str = "", depth: int = DEPTH
) -> Path:
    """A model of digits with random weights; with an `arm` also the record of a trained one."""
    torch.manual_seed(seed)
    config = ViTConfig(
        image_size=8,
        patch_size=4,
        num_channels=1,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=depth,
        num_attention_heads=2,
        num_labels=10,
        initializer_range=0.3,
    )
    ViTForImageClassification(config).save_pretrained(folder)
    if arm is not None:
        recipe = {"variant": "plain"}
        TrainingRecord(arm, seed, base, data, "digits", recipe, 1, 1.0, 1, 1.0, 1).write(folder)
    return folder
