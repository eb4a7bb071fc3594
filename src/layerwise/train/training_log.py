"""Speed and memory in the log of a training run, including sessions before it was resumed.

    seconds               time of all sessions
    step_seconds          median time of a step, from the end of the previous step, validation or checkpoint
    data_wait             share of the step time spent waiting for data
    examples_per_second   examples of all processes
    tokens_per_second     tokens of all processes, without padding
    mfu                   floating-point operations relative to the peak of the devices
    peak_bytes            peak memory

The Trainer counts 6 floating-point operations per parameter and token.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from layerwise.measure.cost.memory import peak_bytes, reset_peak
from layerwise.results.training_record import LogEntry
from layerwise.stack.precision import matmul_precision

Progress = Callable[[int, int, float | None], None]
"""Called with the step, the number of steps, and the last logged training loss."""

_KINDS = {"loss": "train", "eval_loss": "validation"}


def total_seconds(history: Sequence[dict[str, Any]]) -> float:
    return max((float(entry["seconds"]) for entry in history if "seconds" in entry), default=0.0)


def list_log_entries(history: Sequence[dict[str, Any]]) -> tuple[LogEntry, ...]:
    return tuple(
        LogEntry(int(entry["step"]), kind, float(entry[key]))
        for entry in history
        for key, kind in _KINDS.items()
        if key in entry
    )


def gradient_norms(history: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the median and the maximum of the gradient norms in a log, before clipping.

    The Trainer does not log the norm of every step, so the true maximum can be higher.

    >>> gradient_norms([{"grad_norm": 0.5}, {"grad_norm": 3.0}, {"grad_norm": 0.7}, {"loss": 2.0}])
    {'gradient_norm': 0.7, 'gradient_norm_most': 3.0}
    """
    norms = [float(entry["grad_norm"]) for entry in history if "grad_norm" in entry]
    return {"gradient_norm": median(norms), "gradient_norm_most": max(norms)} if norms else {}


MEDIANS = ("step_seconds", "data_wait", "examples_per_second", "tokens_per_second", "mfu")
"""Keys of the log that are reported as medians over the run."""


class Pace(TrainerCallback):
    """Measure the total time, and the speed since the last log entry; report every step to `progress`."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.progress = progress
        self.begun = time.perf_counter()
        self.earlier = 0.0
        self.before: float | None = None
        self.taken: list[float] = []
        self.waited = 0.0
        self._tokens: Tensor | int = 0
        self._flops = 0.0
        self._step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begun, self.earlier = time.perf_counter(), total_seconds(state.log_history)
        self._flops, self._step = float(state.total_flos), state.global_step
        reset_peak()

    def count(self, inputs: Mapping[str, Any]) -> None:
        """Add the tokens of a pass to the count, which stays on their device to avoid synchronization."""
        if "input_ids" in inputs:
            mask = inputs.get("attention_mask")
            self._tokens = self._tokens + (inputs["input_ids"].numel() if mask is None else mask.sum())

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.before is not None:
            self.waited += time.perf_counter() - self.before

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        now = time.perf_counter()
        if self.before is not None:
            self.taken.append(now - self.before)
        self.before = now
        if self.progress is not None:
            losses = (entry["loss"] for entry in reversed(state.log_history) if "loss" in entry)
            self.progress(state.global_step, state.max_steps, next(losses, None))

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.before = time.perf_counter()

    on_save = on_evaluate

    def notes(self, args: Any, state: Any) -> dict[str, float]:
        """Return the measurements since the last log entry; if there was no step, only seconds and memory."""
        noted = {"seconds": self.earlier + time.perf_counter() - self.begun, "peak_bytes": float(peak_bytes())}
        steps = state.global_step - self._step
        if not self.taken or not steps:
            return noted
        seconds = sum(self.taken) / len(self.taken)
        examples = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        noted["step_seconds"] = median(self.taken)
        noted["data_wait"] = self.waited / sum(self.taken)
        noted["examples_per_second"] = examples / seconds
        tokens = float(self._tokens)
        if tokens:
            noted["tokens_per_second"] = tokens * args.world_size / steps / seconds
        peak, flops = find_training_peak(args), float(state.total_flos) - self._flops
        if peak is not None and flops > 0:
            noted["mfu"] = flops / steps / (seconds * peak * args.world_size)
        self.taken.clear()
        self.waited, self._tokens = 0.0, 0
        self._flops, self._step = float(state.total_flos), state.global_step
        return noted


def median_step_seconds(history: Sequence[dict[str, Any]], first: int, end: int) -> float | None:
    noted = [entry for entry in history if "step_seconds" in entry and first < int(entry["step"]) <= end]
    return median(float(entry["step_seconds"]) for entry in noted) if noted else None


def summarize_log(history: Sequence[dict[str, Any]]) -> dict[str, float]:
    figures = {}
    for name in MEDIANS:
        noted = [float(entry[name]) for entry in history if name in entry]
        if noted:
            figures[name] = median(noted)
    peaks = [float(entry["peak_bytes"]) for entry in history if "peak_bytes" in entry]
    return {**figures, **({"peak_bytes": max(peaks)} if peaks else {})}


QUIET: Mapping[str, Any] = {
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "report_to": "none",
    "push_to_hub": False,
}
"""`TrainingArguments` of a run that only times steps: it does not validate, save or report."""

MakeTrainer = Callable[[Path, Mapping[str, Any]], Any]
"""Creates a Trainer, given a folder and `TrainingArguments` that override its own."""


def time_step(make: MakeTrainer, steps: int = 1) -> float:
    """Return the median seconds of `steps` training steps after a warmup step; the trained model is discarded."""
    with TemporaryDirectory(prefix="layerwise-") as name:
        trainer = make(Path(name), {**QUIET, "max_steps": 1 + steps, "logging_steps": 1 + steps})
        trainer.train()
        seconds: float = trainer.figures()["step_seconds"]
        del trainer
    gc.collect()  # Trainer and model form a reference cycle
    return seconds


_TERA = 1e12


PEAKS: dict[str, tuple[float, float | None, float]] = {
    r"H200": (989.4, 494.7, 66.9),
    r"H100 PCIe": (756.0, 378.0, 51.2),
    r"H100 NVL": (835.0, 417.5, 60.0),
    r"H100": (989.4, 494.7, 66.9),
    r"A100": (312.0, 156.0, 19.5),
    r"A30": (165.0, 82.0, 10.3),
    r"A40": (149.7, 74.8, 37.4),
    r"A10": (125.0, 62.5, 31.2),
    r"L40S": (362.0, 183.0, 91.6),
    r"L4": (121.0, 60.0, 30.3),
    r"V100": (125.0, None, 15.7),
    r"T4": (65.0, None, 8.1),
    r"RTX 4090": (165.2, 82.6, 82.6),
    r"RTX 3090": (71.0, 35.6, 35.6),
}
"""Peak TFLOP/s of dense matrix products in half precision, TF32 (None: not supported) and float32, by GPU name.

The first name that the device name contains is used. The values are from NVIDIA's data sheets, and from the white
papers of Ada (RTX 4090) and Ampere (RTX 3090).
"""


def find_peak(device: str, precision: str) -> float | None:
    """Return the peak FLOP/s of a device in `bfloat16`, `float16`, `tf32` or `float32`; None if unknown.

    >>> find_peak("NVIDIA L40S", "bfloat16"), find_peak("Tesla T4", "tf32"), find_peak("another", "float32")
    (362000000000000.0, 8100000000000.0, None)
    """
    for name, (half, tf32, float32) in PEAKS.items():
        if re.search(rf"\b{name}\b", device):
            return {"bfloat16": half, "float16": half, "tf32": tf32 or float32}.get(precision, float32) * _TERA
    return None


def find_training_peak(args: Any) -> float | None:
    given = getattr(args, "peak_flops", None)
    if given is not None:
        return float(given)
    if args.device.type != "cuda":
        return None
    exact = matmul_precision() == "highest"
    precision = "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32" if exact else "tf32"
    return find_peak(torch.cuda.get_device_name(args.device), precision)
