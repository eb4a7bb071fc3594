"""Vision transformers with random weights, with training records as if they had been trained."""

from pathlib import Path

from cli.picture_models import DEPTH, tiny_vit
from layerwise.results.training_record import TrainingRecord


def save_vit(
    folder: Path, seed: int, variant: str | None, *, base: str = "base", data: str = "", depth: int = DEPTH
) -> Path:
    tiny_vit(depth=depth, seed=seed, spread=0.3).save_pretrained(folder)
    if variant is not None:
        recipe = {"variant": "plain"}
        TrainingRecord(variant, seed, base, data, "digits", recipe, 1, 1.0, 1, 1.0, 1).write(folder)
    return folder
