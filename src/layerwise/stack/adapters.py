"""Merge peft adapters into their base model."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from layerwise.data.model_location import EMBEDDED
from layerwise.data.stored_files import ADAPTER, CONFIG, read_settings
from layerwise.errors import CheckpointError, ModelError, UnsupportedModelError
from layerwise.stack.streaming.resident import refuse_on_disk

_WEIGHTS = "adapter_model.safetensors"


def base_of(folder: str) -> str | None:
    """Return the base model of the peft adapter in `folder`, or None if the folder is not an adapter.

    Raises `CheckpointError` if the adapter does not name its base model, or if its weights are pickled.
    """
    path = Path(folder)
    if not (path / ADAPTER).is_file() or (path / CONFIG).is_file():
        return None
    base = read_settings(path / ADAPTER).get("base_model_name_or_path")
    if not (path / _WEIGHTS).is_file():
        raise CheckpointError(f"{folder} is an adapter without {_WEIGHTS}. Pickled weights are refused.")
    is_valid = isinstance(base, str) and base and (base in EMBEDDED or base.count("/") <= 1 or Path(base).is_dir())
    if not is_valid:
        raise CheckpointError(
            f"{folder} is an adapter whose base model ({base or 'not named'}) cannot be found. Set "
            f"base_model_name_or_path in {ADAPTER} to its folder or hub id, or use a model saved after "
            "merge_and_unload()."
        )
    return str(base)


def merge_adapter(base: nn.Module, folder: str) -> Any:
    if find_spec("peft") is None:
        raise ModelError(f"merging the adapter {folder} requires the package peft: pip install 'layerwise[heal]'")
    from peft import PeftModel

    refuse_on_disk(base, "merge an adapter")
    try:
        with warnings.catch_warnings():
            # peft only warns of missing and unexpected keys.
            warnings.filterwarnings("error", message=".*(missing|unexpected).*adapter keys", category=UserWarning)
            return PeftModel.from_pretrained(base, folder).merge_and_unload()
    except Exception as error:  # peft raises many types
        raise UnsupportedModelError(
            f"{folder} is an adapter that cannot be merged into its base model ({type(error).__name__}: {error}). "
            "Attach it to the model with peft and pass that model."
        ) from error


def refuse_adapters(model: nn.Module) -> None:
    if any(type(module).__module__.startswith("peft.") for module in model.modules()):
        raise UnsupportedModelError(
            f"{type(model).__name__} has peft adapters, which cannot be saved under a plan. Merge them first: "
            "save(layerwise.load(peft_model.merge_and_unload()), plan, folder)."
        )
