"""How a training reads its examples: processes beside the one that computes, where there is an accelerator to wait.

A processor that computes the training has no core left for readers, so on CPUs the examples are read between the
steps. An accelerator must not wait: workers make the batches of the next steps meanwhile, and put them where the
accelerator fetches them by itself (pinned memory). What is drawn for an example is decided by its index, so that the
number of workers changes no weight.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from typing import Any

from accelerate import PartialState

WORKERS = 4
"""Processes that read examples for each accelerator, where there are as many cores."""

PREFETCHED = 4
"""Batches that each of them makes ahead."""


def loader_arguments(device: str, *, processes: int = 1, workers: object = None) -> dict[str, Any]:
    """The `TrainingArguments` of the data loader for a type of `device` ("cpu", "cuda", ...).

    With an accelerator: `workers`, by default at most `WORKERS`, and no more than the cores that each of the
    `processes` of this machine has but for one; `PREFETCHED` batches each; and pinned memory where CUDA or XPU fetch
    from it. On a processor none of them, unless `workers` are asked for. Where processes do not start as copies (macOS,
    Windows), each worker would hold the data again: there are none then but those that are asked for.

    >>> loader_arguments("cpu")
    {'dataloader_pin_memory': False}
    >>> loader_arguments("cuda", workers=2)["dataloader_num_workers"]
    2
    """
    accelerated = device != "cpu"
    if workers is None:
        copied = multiprocessing.get_start_method() == "fork"
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = max(1, min(WORKERS, cores // processes - 1)) if accelerated and copied else 0
    arguments: dict[str, Any] = {"dataloader_pin_memory": device in ("cuda", "xpu")}
    if workers:
        arguments["dataloader_num_workers"] = workers
        arguments["dataloader_prefetch_factor"] = PREFETCHED
    return arguments


def input_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """`loader_arguments` of this process; `given` are further `TrainingArguments`, whose workers count."""
    device = PartialState(cpu=bool(given.get("use_cpu", False))).device.type
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return loader_arguments(device, processes=processes, workers=given.get("dataloader_num_workers"))
