"""LoRA adapters, by peft: put on the layers of a plan, stored in peft's own format, merged into the weights.

Each linear map W of shape (out, in) becomes W + (alpha / rank) B A with A (rank, in) and B (out, rank), of which only A
and B learn (Hu et al. 2021). B begins at zero, so that the model is at first what it was; alpha is 2 rank.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn
from transformers.pytorch_utils import Conv1D

from layerwise.errors import TrainError
from layerwise.plan import Plan
from layerwise.stack import Stack

CONFIG = "adapter_config.json"
"""The file by which a folder is known as that of adapters."""


def peft() -> Any:
    """The library. Raises `TrainError` where it is not installed."""
    try:
        return import_module("peft")
    except ImportError as error:
        raise TrainError(
            f"healing with LoRA needs the library peft, which cannot be imported ({error}); install it with "
            "pip install 'layerwise[heal]', or heal with --method tail or --method full, which do without"
        ) from error


def add_adapters(stack: Stack, plan: Plan, rank: int) -> Any:
    """Put new adapters on every linear map in the layers of `plan`; all else is frozen.

    The model of `stack` stays the one that runs; what is returned is peft's handle for it. Raises `TrainError` for
    layers without a linear map.
    """
    library = peft()
    maps = {
        f"{stack.path}.{layer}.{name}": module
        for layer in sorted(set(plan.layers()))
        for name, module in stack.block(layer).named_modules()
        if isinstance(module, nn.Linear | Conv1D)
    }
    if not maps:
        raise TrainError(
            f"the layers of {type(stack.model).__name__} have no linear map that an adapter could be put on; heal with "
            "--method full"
        )
    transposed = all(isinstance(module, Conv1D) for module in maps.values())
    config = library.LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, bias="none", target_modules=list(maps),
        fan_in_fan_out=transposed,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft reads a name that transformers renames
        return library.get_peft_model(stack.model, config)


def write_adapters(handle: Any, folder: Path) -> None:
    """Write the adapters alone, in peft's format."""
    # The embedding is never adapted; "auto" would look for the base model on the hub to find that out.
    handle.save_pretrained(str(folder), save_embedding_layers=False)


def read_adapters(stack: Stack, folder: Path) -> Any:
    """Put the adapters in `folder` on the model of `stack`; returns peft's handle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return peft().PeftModel.from_pretrained(stack.model, str(folder))


def merge_adapters(handle: Any) -> None:
    """Add the adapters to the weights, and leave the model as plain as it was before there were any."""
    handle.merge_and_unload()
    if hasattr(handle.base_model.model, "peft_config"):
        del handle.base_model.model.peft_config
