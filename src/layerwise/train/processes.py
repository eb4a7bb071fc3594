"""Processes of a training run that torchrun started, according to its environment variables."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

_WITHOUT_BITS = (
    "use_cpu",
    "report_to",
    "run_name",
    "project",
    "trackio_space_id",
    "disable_tqdm",
    "log_level",
    "log_level_replica",
    "log_on_each_node",
    "logging_dir",
    "logging_first_step",
    "logging_steps",
    "logging_strategy",
    "dataloader_num_workers",
    "dataloader_pin_memory",
    "dataloader_prefetch_factor",
    "dataloader_persistent_workers",
    "save_total_limit",
    "checkpoint_minutes",
    "peak_flops",
)


def is_first_process() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def is_alone() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) == 1


def use_own_accelerator() -> None:
    """Select the GPU of this process, if torchrun started several processes on this machine."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def training_settings(arguments: Mapping[str, Any]) -> dict[str, object]:
    """Return the settings outside the recipe that affect the result: the number of processes, and `arguments`."""
    given = {name: value for name, value in sorted(arguments.items()) if name not in _WITHOUT_BITS}
    values: dict[str, object] = {"processes": os.environ.get("WORLD_SIZE", "1")}
    if given:
        values["set"] = ", ".join(f"{name}={json.dumps(value, default=str)}" for name, value in given.items())
    return values


def shared_recipe(options: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, object]:
    return {"options": options, "set": training_settings(arguments).get("set")}
