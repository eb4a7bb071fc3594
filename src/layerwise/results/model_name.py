"""What a model is called where people read it: its name, and not the path that it was opened by."""

from __future__ import annotations

import re

UNNAMED = frozenset({"model", "checkpoint", "hf", "weights", "output", "final", "."})
"""Names of folders that say nothing about the model in them."""


def model_name(location: str) -> str:
    """The last part of a path or of a hub id; of a model that a training left, its arm and its seed.

    >>> model_name("HuggingFaceTB/SmolLM2-135M"), model_name("/data/models/tiny/"), model_name("demo")
    ('SmolLM2-135M', 'tiny', 'demo')
    >>> model_name("runs/demo-vit-1a2b3c4d/layershuffle/seed-0/model")
    'layershuffle, seed 0'
    """
    *above, last = [part for part in re.split(r"[/\\]", location) if part not in ("", ".")] or [location]
    seed = re.fullmatch(r"seed-(\d+)", above[-1]) if above else None
    return f"{above[-2]}, seed {seed[1]}" if seed and len(above) > 1 else last


def model_title(location: str, structure: str) -> str:
    """What a page calls a model: its name, or its structure where the name is that of any folder.

    >>> model_title("org/SmolLM2-135M", "Llama, 30 layers, 135 M"), model_title("/tmp/model", "Llama, 30 layers, 135 M")
    ('SmolLM2-135M', 'Llama, 30 layers, 135 M')
    """
    name = model_name(location)
    return structure if structure and name.lower() in UNNAMED else name
