"""Compare a step of PlanTrainer, which draws a plan per step, with one of the Hugging Face Trainer.

    python benchmarks/layershuffle.py [--rounds 9] [--steps 12] [--batch 32] [--width 96] [--side 16] [--threads 1]
    python benchmarks/layershuffle.py --device cuda --precision bfloat16 --compiled --batch 256 --width 768 --side 56

The same model, batches and recipe; every round times some steps of each variant
in a changing order, and it prints the ratio of medians over rounds. LayerDrop skips half of the
layers, so its step should cost little more than half. With --compiled the plain Trainer compiles the whole
model (torch_compile) and the others compile its blocks; the first half of the steps, which compile, is not timed.

Bars: LayerShuffle's step takes at most 1.02 times the Trainer's on a CPU, and reads at least 0.95 times its
images per second on an accelerator, compiled and in bfloat16.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch
from transformers import (
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.utils import logging

from layerwise.data.splits import Example, Examples
from layerwise.plan.samplers import Drop, Fixed, Sampler, SeededSampler, Shuffle
from layerwise.stack import load
from layerwise.train.trainer import PlanTrainer

STEP, IMAGES = 1.02, 0.95
"""Bars: maximum step time and minimum images per second, relative to the plain Trainer's."""


class Noise(Examples):
    """Images of noise."""

    def __init__(self, count: int, side: int) -> None:
        self.pixels = torch.randn(count, 3, side, side)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Example:
        return {"pixel_values": self.pixels[index], "labels": torch.tensor(index % 10)}


class Stopwatch(TrainerCallback):
    """The seconds of every optimizer step; processor time on a CPU."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.seconds: list[float] = []

    def on_step_begin(self, *_: object, **__: object) -> None:
        self.begun = self._now()

    def on_step_end(self, *_: object, **__: object) -> None:
        self.seconds.append(self._now() - self.begun)

    def _now(self) -> float:
        if self.device == "cpu":
            return time.process_time()  # other work on the machine does not count
        torch.accelerator.synchronize()
        return time.perf_counter()


def model(width: int, side: int) -> ViTForImageClassification:
    """Make a vision transformer of 12 layers."""
    torch.manual_seed(0)
    return ViTForImageClassification(
        ViTConfig(
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=12,
            num_attention_heads=4,
            image_size=side,
            patch_size=4,
            num_labels=10,
        )
    )


def timed(sampler: Sampler | None, options: argparse.Namespace, folder: Path, seed: int) -> list[float]:
    """Return the seconds of each step; without a sampler, of the plain Trainer."""
    watch = Stopwatch(options.device)
    net = model(options.width, options.side)
    settings = {
        "args": TrainingArguments(
            output_dir=str(folder),
            max_steps=options.steps,
            per_device_train_batch_size=options.batch,
            learning_rate=1e-4,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=seed,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            use_cpu=options.device == "cpu",
            bf16=options.precision == "bfloat16",
            torch_compile=options.compiled and sampler is None,
        ),
        "train_dataset": Noise(options.steps * options.batch, options.side),
        "callbacks": [watch],
    }
    if sampler is None:
        trainer: Trainer = Trainer(model=net, **settings)
    else:
        stack = load(net)
        trainer = PlanTrainer(
            stack=stack,
            draws=SeededSampler(sampler, stack.depth, seed),
            validation=SeededSampler(Fixed(), stack.depth, 0),
            compiled=options.compiled,
            **settings,
        )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return watch.seconds[options.steps // 2 if options.compiled else 2 :]


def main() -> None:
    """Time every variant and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--side", type=int, default=16, help="pixels of a side; a token is 4 x 4")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    ways: dict[str, Sampler | None] = {
        "Trainer": None,
        "in order": Fixed(),
        "LayerShuffle": Shuffle(),
        "LayerDrop 0.5": Drop(0.5),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            order = list(ways)
            random.Random(number).shuffle(order)
            for name in order:
                seconds = timed(ways[name], options, Path(folder), number)
                found[name] += [statistics.median(seconds)] if name != "LayerDrop 0.5" else [statistics.mean(seconds)]
    plain = statistics.median(found["Trainer"])
    print(
        f"12 layers of width {options.width}, batch {options.batch}, {options.rounds} rounds, {options.precision} on "
        f"{options.device}{', compiled' * options.compiled}, {options.threads} threads"
    )
    print(f"Trainer: {plain * 1000:.1f} ms per step, {options.batch / plain:,.0f} images/s")
    for name, values in found.items():
        if name != "Trainer":
            ratios = sorted(value / base for value, base in zip(values, found["Trainer"], strict=True))
            print(f"{name}: {statistics.median(values) / plain:.3f} x (rounds {ratios[0]:.3f} to {ratios[-1]:.3f})")
    ratio = statistics.median(found["LayerShuffle"]) / plain
    if options.device == "cpu":
        print(f"bar: a step of LayerShuffle takes at most {STEP} x: {ratio:.3f} {'met' if ratio <= STEP else 'missed'}")
    else:
        speed = 1 / ratio
        print(f"bar: LayerShuffle reads at least {IMAGES} x: {speed:.3f} {'met' if speed >= IMAGES else 'missed'}")


if __name__ == "__main__":
    main()
