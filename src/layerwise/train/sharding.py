"""Models that do not fit on one device: FSDP, as the arguments of the Trainer ask for it, made right for a stack.

accelerate divides a model into units by lists of classes that transformers keeps for every model. For some, such as
ViT, these lists name a part twice, and sharding fails. A stack knows its layers, so the classes of those are the units,
unless the arguments name others.

torch refuses to load the state of an optimizer in which a weight that may learn has no moments. Under plans this is how
it should be: a layer that was in no plan so far, or in no phase, has none.
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
    """Raise `TrainError` if FSDP shards nothing or cannot train; with `per_rank` each process draws its own plans."""
    if trainer.args.fsdp and not trainer.is_fsdp_enabled:
        raise TrainError(
            "accelerate shards a model over several accelerators alone, and each process here would hold all of it; "
            "leave --set fsdp out"
        )
    if trainer.is_fsdp_enabled and per_rank:
        raise TrainError(
            "processes that hold a model in shards run every layer together, so they cannot leave out layers each for "
            "itself; write --drop-sync shared, or leave --set fsdp out"
        )


@contextmanager
def only_with_moments(model: nn.Module, checkpoint: str) -> Iterator[None]:
    path = Path(checkpoint) / f"{OPTIMIZER_NAME}.bin"
    names = set(torch.load(path, map_location="cpu", weights_only=True, mmap=True)["state"]) if path.is_file() else None
    resting = [
        weight
        for name, weight in model.named_parameters()
        if weight.requires_grad and names is not None and name not in names
    ]
    for weight in resting:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in resting:
            weight.requires_grad_(True)


def reshard(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def assign(weight: Tensor, value: Tensor) -> None:
    if isinstance(weight, DTensor) and not isinstance(value, DTensor):
        value = distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements)
    weight.copy_(value)
