"""A healed model opened again: its base, with what learned put into the weights."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from layerwise.errors import CheckpointError
from layerwise.stack import Stack
from layerwise.train.heal.adapters import CONFIG, merge_adapters, read_adapters
from layerwise.train.heal.trainer import WEIGHTS


def load_healed(stack: Stack, folder: Path) -> Stack:
    """Put what a healing left in `folder` into the weights of `stack`, a fresh copy of its base; returns the stack.

    Adapters are merged, so that the model is an ordinary one. Raises `CheckpointError` for a folder that holds neither
    adapters nor weights, or weights of another model.
    """
    if (folder / CONFIG).is_file():
        merge_adapters(read_adapters(stack, folder))
        stack.model.requires_grad_(True)
        return stack
    try:
        learned = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder} holds nothing that a healing left ({error}); heal the model again") from error
    own = dict(stack.model.named_parameters())
    for name, value in learned.items():
        if name not in own or own[name].shape != value.shape:
            raise CheckpointError(f"{folder} holds {name} of shape {tuple(value.shape)}, which this model has not")
        with torch.no_grad():
            own[name].copy_(value)
    return stack
