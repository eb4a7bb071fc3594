"""Checks of a checkpoint's files before a model is built: bounded JSON, and a model no larger than its tensors.

A configuration of a hundred bytes can ask for a billion layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.initialization import no_init_weights

from layerwise.bounded import named, shortened
from layerwise.data.auto_classes import from_pretrained
from layerwise.data.model_location import is_gguf
from layerwise.data.stored_files import CONFIG, Tensors, read_config, read_header, read_settings, weight_files
from layerwise.errors import CheckpointError, ModelError
from layerwise.gguf import CONVERT_AGAIN

_REASON = 200  # characters of what transformers says of a configuration

MOST_PARTS = 1_000
"""Layers or experts that a configuration may ask for without as many saved tensors."""

SLACK = 2**22
"""Numbers that a model may have beyond twice those that were saved: a head that is missing is said by its name."""


def check_folder(folder: Path) -> Tensors:
    """Return the tensors that transformers would load from `folder`, by their headers.

    Raises `CheckpointError` for missing, truncated, malformed, pickled or outside files, and for too many layers.
    """
    settings = read_config(folder)
    read_settings(folder / "generation_config.json")
    saved = {name: tensor for file in weight_files(folder, settings) for name, tensor in read_header(file).items()}
    check_counts(folder, settings, len(saved))
    return saved


def open_config(location: str, revision: str | None = None) -> Any:
    """Read the configuration of a folder (checked first) or hub id. Raises `ModelError` if it cannot be read."""
    folder = Path(location).expanduser()
    if folder.is_dir():
        check_counts(folder, read_config(folder))
    try:
        return from_pretrained("AutoConfig", str(folder), revision=revision)
    except ModelError:
        raise
    except Exception as error:  # transformers raises many kinds for files, network and configurations
        reason = shortened(" ".join(str(error).split()), _REASON) or type(error).__name__
        raise CheckpointError(
            f"the configuration of {named(location)} cannot be read ({reason}); give a folder with a {CONFIG} that "
            "transformers reads, or a hub id that this machine can reach"
        ) from error


def check_counts(folder: Path, settings: Mapping[str, Any], tensors: int = 0) -> None:
    for key, count in _counts(settings):
        if count > max(tensors, MOST_PARTS):
            limit = f"{tensors} tensors were saved" if tensors else f"at most {MOST_PARTS:,} are built without weights"
            raise CheckpointError(
                f"{folder / CONFIG}: {key} is {_number(count)}, and {limit}; correct it, or save the model again"
            )


def _counts(settings: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _counts(value)
        elif isinstance(key, str) and any(word in key for word in ("layers", "n_layer", "experts", "depth")):
            values = value if isinstance(value, list) else [value]
            yield from ((key, each) for each in values if isinstance(each, int))


def check_size(location: str, saved: Tensors, draw: Callable[[], nn.Module]) -> None:
    there = sum(prod(tensor.shape) for tensor in saved.values())
    numbers = 0
    with suppress(Exception), torch.device("meta"), no_init_weights():
        numbers = numbers_of(draw())
    if numbers > 2 * there + SLACK:
        source, advice = CONFIG, "correct its sizes (vocab_size, hidden_size and the like), or save the model again"
        if is_gguf(location):
            source, advice = "its metadata", CONVERT_AGAIN
        raise CheckpointError(
            f"{location}: {source} describes a model of {_number(numbers)} numbers, and {_number(there)} were saved; "
            f"{advice}"
        )


def numbers_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _number(count: int) -> str:
    return f"{count:,}" if abs(count) < 10**18 else "a number of more than 18 digits"
