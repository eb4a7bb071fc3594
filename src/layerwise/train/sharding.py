"""Sharded training (FSDP) of a stack.

accelerate wraps the classes that transformers lists for a model. For some models, such as ViT, this list is wrong and
sharding fails, so the classes of the layers are wrapped instead, unless the user names others.

torch cannot load an optimizer state in which a trainable weight has no moments. Under plans this is normal: a layer has
no moments if it has never run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils.constants import OPTIMIZER_NAME
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor

from layerwise.errors import TrainError

_UNITS = ("transformer_layer_cls_to_wrap", "auto_wrap_policy", "min_num_params")


def with_units(arguments: Mapping[str, Any], blocks: Iterable[nn.Module]) -> dict[str, Any]:
    config = arguments.get("fsdp_config") or {}
    if not arguments.get("fsdp") or not isinstance(config, Mapping):
        return dict(arguments)
    if any(str(name).removeprefix("fsdp_") in _UNITS for name in config):
        return dict(arguments)
    names = sorted({type(block).__name__ for block in blocks})
    return {**arguments, "fsdp_config": {**config, _UNITS[0]: names}}


def check_sharding(trainer: Any, *, per_rank: bool = False) -> None:
    """Raise `TrainError` if FSDP is requested on one process, or if processes draw different plans (`per_rank`)."""
    if trainer.args.fsdp and not trainer.is_fsdp_enabled:
        raise TrainError("--set fsdp requires several accelerators. Remove it, or start several processes.")
    if trainer.is_fsdp_enabled and per_rank:
        raise TrainError(
            "--set fsdp requires --drop-sync shared, because all processes must run the same layers. Pass it, or "
            "remove --set fsdp."
        )


@contextmanager
def only_with_moments(model: nn.Module, checkpoint: str) -> Iterator[None]:
    path = Path(checkpoint) / f"{OPTIMIZER_NAME}.bin"
    names = set(torch.load(path, map_location="cpu", weights_only=True, mmap=True)["state"]) if path.is_file() else None
    frozen = [
        weight
        for name, weight in model.named_parameters()
        if weight.requires_grad and names is not None and name not in names
    ]
    for weight in frozen:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in frozen:
            weight.requires_grad_(True)


def reshard(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def assign(weight: Tensor, value: Tensor) -> None:
    if isinstance(weight, DTensor) and not isinstance(value, DTensor):
        value = distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements)
    weight.copy_(value)
