"""Resolution of model names to directories, GGUF files and hub ids."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from layerwise.bounded import kind_of, named
from layerwise.errors import CheckpointError, ModelError

EMBEDDED = {"demo": "models/demo", "demo-vit": "models/demo_vit"}
"""Maps the names of bundled models to their folders."""

SUFFIX = ".gguf"


def is_gguf(location: str | Path) -> bool:
    return str(location).lower().endswith(SUFFIX)


def location_of(name: str) -> str:
    """Resolve a model name to a directory, a GGUF file or a hub id.

    Raises `ModelError` or `CheckpointError` if a path has no model.
    """
    if name in EMBEDDED:
        return str(resources.files("layerwise") / EMBEDDED[name])
    try:
        folder = Path(name).expanduser()
    except RuntimeError as error:
        raise ModelError(f"{named(name)} does not exist: {error}") from error
    kind = kind_of(folder)
    if kind == "folder" or (kind == "file" and is_gguf(folder)):
        return str(folder)
    if kind != "nothing":
        raise CheckpointError(
            f"{name} is a {kind}. Pass a directory with config.json and model.safetensors, or a GGUF file."
        )
    if is_gguf(name):
        raise CheckpointError(f"{named(name)} does not exist. Pass a GGUF file, a directory, or a hub id.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise CheckpointError(
            f"{named(name)} does not exist. Pass a directory, a hub id such as owner/name, or `demo`."
        )
    return name
