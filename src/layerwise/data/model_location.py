"""What a user's name of a model leads to: a folder, a GGUF file, or a hub id."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from layerwise.bounded import kind_of, named
from layerwise.errors import CheckpointError, ModelError

EMBEDDED = {"demo": "models/demo", "demo-vit": "models/demo_vit"}
"""Models that come with the package, by the name a user types."""


SUFFIX = ".gguf"
"""How the names of GGUF files end, each of which is a whole model."""


def is_gguf(location: str | Path) -> bool:
    return str(location).lower().endswith(SUFFIX)


def location_of(name: str) -> str:
    """Return what transformers loads for a model's name: a folder, a GGUF file or a hub id.

    Raises `ModelError` or `CheckpointError` for a path without a model.
    """
    if name in EMBEDDED:
        return str(resources.files("layerwise") / EMBEDDED[name])
    try:
        folder = Path(name).expanduser()
    except RuntimeError as error:
        raise ModelError(f"there is no model at {named(name)}: {error}") from error
    kind = kind_of(folder)
    if kind == "folder" or (kind == "file" and is_gguf(folder)):
        return str(folder)
    if kind != "nothing":
        raise CheckpointError(
            f"{name} is a {kind}; give the folder that holds config.json and model.safetensors, or a GGUF file"
        )
    if is_gguf(name):
        raise CheckpointError(f"there is no file {named(name)}; give a GGUF file, a folder, or a hub id")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise CheckpointError(
            f"there is no folder {named(name)}; give a folder, a hub id such as owner/name, or `demo`"
        )
    return name
