"""Build and check the `TrainingArguments` of a training run.

On an accelerator, worker processes prepare the next batches. Random draws depend only on the index of the example, so
the number of workers does not change the weights.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch
from accelerate import PartialState
from transformers import TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, get_available_reporting_integrations

from layerwise.errors import TrainError, near_matches

WORKERS = 4
"""Maximum number of data loader workers per accelerator."""

PREFETCHED = 4
"""Number of batches that each data loader worker prepares in advance."""

_OURS = ("output_dir",)

_EVERY = ("all", "none")
_PACKAGES = {"comet_ml": "comet-ml", "azure_ml": "azureml-core mlflow", "neptune": "neptune", "flyte": "flytekit"}

_WORDS = {bool: "true or false", int: "a whole number", float: "a number"}


@dataclass
class MeasuredArguments(TrainingArguments):
    """`TrainingArguments` with two more options. By default, `peak_flops` is looked up in `training_log.PEAKS`."""

    checkpoint_minutes: float | None = field(default=None, metadata={"help": "Minutes between checkpoints."})
    peak_flops: float | None = field(default=None, metadata={"help": "Peak FLOP/s of one device."})

    def __post_init__(self) -> None:
        for name in ("checkpoint_minutes", "peak_flops"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0, got {value}.")
        super().__post_init__()


def check_arguments(given: Mapping[str, Any]) -> None:
    known = {item.name for item in fields(MeasuredArguments) if item.init}
    hints = _hints() if given else {}
    for name, value in given.items():
        if name not in known:
            raise TrainError(f"unknown training argument {name!r}; {_suggest(name, known)}")
        if name in _OURS:
            raise TrainError(f"{name} cannot be changed with --set. Pass --run DIRECTORY instead.")
        types = _plain_types(hints[name])
        if types and not _fits(value, types):
            words = " or ".join(_WORDS[each] for each in types)
            raise TrainError(f"the training argument {name} must be {words}, got {str(value)[:40]!r}.")
    check_trackers(given.get("report_to"))
    if given.keys() - {"use_cpu"}:
        training_arguments({"output_dir": "unused", "report_to": "none", "disable_tqdm": True, **given})


def check_trackers(report_to: object) -> None:
    names = [report_to] if isinstance(report_to, str) else report_to if isinstance(report_to, Iterable) else ()
    for name in map(str, names):
        if name in _EVERY:
            continue
        if name not in INTEGRATION_TO_CALLBACK:
            raise TrainError(f"unknown tracker {name[:40]!r}; {near_matches(name, INTEGRATION_TO_CALLBACK)}")
        if name not in get_available_reporting_integrations():
            raise TrainError(
                f"the tracker {name} is not installed. Run pip install {_PACKAGES.get(name, name)}, or pass "
                "--set report_to=none."
            )


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(TrainingArguments) | get_type_hints(MeasuredArguments)


def training_arguments(values: Mapping[str, Any]) -> MeasuredArguments:
    try:
        return MeasuredArguments(**values)
    except (TypeError, ValueError, OverflowError, ImportError, KeyError, AttributeError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise TrainError(f"transformers rejects the training arguments: {reason}") from error


def common_arguments(folder: Path | str, seed: int, given: Mapping[str, Any], **own: Any) -> MeasuredArguments:
    """Build the arguments of a training run in `folder`. The arguments in `given` override the keyword arguments."""
    arguments = training_arguments(
        {
            "output_dir": str(folder),
            "seed": seed,
            "report_to": "none",
            "disable_tqdm": True,
            "remove_unused_columns": False,
            "label_names": ["labels"],
            **input_arguments(given),
            **own,
            **given,
        }
    )
    # One process per device (torchrun): DataParallel would copy blocks without their plans and split batches again.
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def step_arguments(steps: int, evals: int) -> dict[str, Any]:
    every = max(1, math.ceil(steps / evals))
    return {
        "max_steps": steps,
        "logging_steps": max(1, every // 4),
        "eval_strategy": "steps",
        "eval_steps": every,
        "save_strategy": "steps",
        "save_steps": every,
        "save_total_limit": 2,
    }


def with_device(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add `use_cpu=True` if there is no accelerator, so that several processes can train together on the CPU."""
    return {"use_cpu": not torch.accelerator.is_available(), **values}


def loader_arguments(device: str, *, processes: int = 1, workers: object = None) -> dict[str, Any]:
    """Return the data loader's `TrainingArguments` for a device type ("cpu", "cuda", ...).

    By default an accelerator gets up to `WORKERS` workers, leaving one CPU core of each process free. The CPU, and
    systems where processes do not fork (macOS, Windows), get none. CUDA and XPU use pinned memory.

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
    """Return `loader_arguments` for the device of this process; `given` can set the number of workers."""
    device = PartialState(cpu=bool(given.get("use_cpu", False))).device.type
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return loader_arguments(device, processes=processes, workers=given.get("dataloader_num_workers"))


def _suggest(name: str, known: set[str]) -> str:
    matches = near_matches(name, known)
    return (
        matches.partition(" Known: ")[0] if "did you mean" in matches else "see the documentation of TrainingArguments"
    )


def _plain_types(hint: Any) -> tuple[type, ...]:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    plain = tuple(option for option in options if option is not NoneType)
    return plain if plain and all(option in _WORDS for option in plain) else ()


def _fits(value: object, types: tuple[type, ...]) -> bool:
    if value is None or isinstance(value, bool):
        return value is None or bool in types
    if isinstance(value, int):
        return (int in types or float in types) and abs(value) < 2**53
    return isinstance(value, float) and math.isfinite(value) and float in types
