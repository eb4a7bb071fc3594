"""Precision of the forward pass in training: float32, or half precision with float32 weights.

The precision is stored in `training_config.json`, so a run resumes with the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args

from layerwise.results.checked import read_json_file
from layerwise.results.training_record import FILE, MODEL

Precision = Literal["float32", "bfloat16", "float16"]

ARGUMENTS: Mapping[Precision, Mapping[str, bool]] = {
    "float32": {},
    "bfloat16": {"bf16": True},
    "float16": {"fp16": True},
}


def default_precision(device: str) -> Precision:
    """Return `bfloat16` for an accelerator with bfloat16 instructions, otherwise `float32`.

    >>> default_precision("cpu")
    'float32'
    """
    from layerwise.stack.load import resolve_device
    from layerwise.stack.rounding import has_bfloat16

    resolved = resolve_device(device)
    return "bfloat16" if resolved.type != "cpu" and has_bfloat16(resolved) else "float32"


def recorded_precision(run: Path) -> Precision | None:
    """Return the precision of the training runs in a run directory, or None if there are none."""
    from layerwise.train.checkpoint_dir import CONFIG  # imports transformers, which is slow

    patterns = (f"*/seed-*/{CONFIG}", f"*/seed-*/{MODEL}/{FILE}")
    for path in (path for pattern in patterns for path in sorted(run.glob(pattern))):
        content: Any = read_json_file(path)
        recipe = content.get("recipe") if isinstance(content, dict) else None
        for part in ("settings", "pretraining"):
            settings = recipe.get(part) if isinstance(recipe, dict) else None
            recorded = settings.get("precision") if isinstance(settings, dict) else None
            if recorded in get_args(Precision):
                return cast(Precision, recorded)
    return None
