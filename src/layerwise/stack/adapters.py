"""Adapters of peft: folders that hold one are opened merged into their base model; attached ones are not written."""

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
    """Return the name of the base model of the adapter in `folder`; `None` for any other location.

    Raises `CheckpointError` for an adapter without a base model or with pickled weights.
    """
    path = Path(folder)
    if not (path / ADAPTER).is_file() or (path / CONFIG).is_file():
        return None
    base = read_settings(path / ADAPTER).get("base_model_name_or_path")
    if not (path / _WEIGHTS).is_file():
        raise CheckpointError(f"{folder} is an adapter without {_WEIGHTS}. Pickled weights are refused.")
    is_known = isinstance(base, str) and base and (base in EMBEDDED or base.count("/") <= 1 or Path(base).is_dir())
    if not is_known:
        raise CheckpointError(
            f"{folder} is an adapter, and its base model ({base or 'not named'}) cannot be found. Write the folder or "
            f"the hub id of the base model as base_model_name_or_path into {ADAPTER}, or give the folder of a model "
            "saved after merge_and_unload()."
        )
    return str(base)


def merge_adapter(base: nn.Module, folder: str) -> Any:
    """Return `base` with the adapter in `folder` merged into its weights. Raises `ModelError` if that is impossible."""
    if find_spec("peft") is None:
        raise ModelError(f"{folder} is an adapter, which the package peft merges: pip install 'layerwise[heal]'")
    from peft import PeftModel

    refuse_on_disk(base, "merge an adapter")
    try:
        with warnings.catch_warnings():
            # What the adapter lacks, or has no place in the base model, peft only warns of.
            warnings.filterwarnings("error", message=".*(missing|unexpected).*adapter keys", category=UserWarning)
            return PeftModel.from_pretrained(base, folder).merge_and_unload()
    except Exception as error:  # peft raises many kinds for its files and its kinds of adapters
        raise UnsupportedModelError(
            f"{folder} is an adapter that cannot be merged into its base model ({type(error).__name__}: {error}). "
            "Attach it to the model with peft and pass that model."
        ) from error


def refuse_adapters(model: nn.Module) -> None:
    if any(type(module).__module__.startswith("peft.") for module in model.modules()):
        raise UnsupportedModelError(
            f"{type(model).__name__} has adapters of peft, which a checkpoint of a plan does not hold. Merge them "
            "first: save(layerwise.load(peft_model.merge_and_unload()), plan, folder)."
        )
