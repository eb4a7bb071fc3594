"""What drawing a plan for every step costs: a step of PlanTrainer against one of the plain Hugging Face Trainer.

    python benchmarks/layershuffle.py [--rounds 9] [--steps 12] [--batch 32] [--width 96] [--threads 1]

The same model, the same batches, the same recipe; every round times some steps of each way of training, one after
another in a changing order, and what is printed is the ratio of medians over rounds. LayerDrop leaves out half of the
layers (true skip), so its step should cost little more than half.
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

SIDE = 16


class Noise(Examples):
    """Images of noise, made once."""

    def __init__(self, count: int, side: int) -> None:
        self.pixels = torch.randn(count, 3, side, side)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Example:
        return {"pixel_values": self.pixels[index], "labels": torch.tensor(index % 10)}


class Stopwatch(TrainerCallback):
    """The seconds of every optimiser step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_: object, **__: object) -> None:
        self.begun = time.perf_counter()

    def on_step_end(self, *_: object, **__: object) -> None:
        self.seconds.append(time.perf_counter() - self.begun)


def model(width: int, side: int) -> ViTForImageClassification:
    """A vision transformer of 12 layers."""
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


def timed(sampler: Sampler | None, width: int, steps: int, batch: int, folder: Path, seed: int) -> list[float]:
    """Seconds of each step of one training; without a sampler, of the plain Trainer."""
    watch = Stopwatch()
    net = model(width, SIDE)
    options = {
        "args": TrainingArguments(
            output_dir=str(folder), max_steps=steps, per_device_train_batch_size=batch, learning_rate=1e-4,
            save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True, seed=seed,
            dataloader_pin_memory=False, remove_unused_columns=False,
        ),
        "train_dataset": Noise(steps * batch, SIDE),
        "callbacks": [watch],
    }  # fmt: skip
    if sampler is None:
        trainer: Trainer = Trainer(model=net, **options)
    else:
        stack = load(net)
        trainer = PlanTrainer(
            stack=stack,
            draws=SeededSampler(sampler, stack.depth, seed),
            validation=SeededSampler(Fixed(), stack.depth, 0),
            **options,
        )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return watch.seconds[2:]


def main() -> None:
    """Time every way of training, round by round, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--threads", type=int, default=1)
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
                seconds = timed(ways[name], options.width, options.steps, options.batch, Path(folder), number)
                found[name] += [statistics.median(seconds)] if name != "LayerDrop 0.5" else [statistics.mean(seconds)]
    plain = statistics.median(found["Trainer"])
    print(
        f"12 layers of width {options.width}, batch {options.batch}, {options.threads} threads, {options.rounds} rounds"
    )
    print(f"Trainer: {plain * 1000:.1f} ms a step")
    for name, values in found.items():
        if name != "Trainer":
            ratios = sorted(value / base for value, base in zip(values, found["Trainer"], strict=True))
            print(f"{name}: {statistics.median(values) / plain:.3f} x (rounds {ratios[0]:.3f} to {ratios[-1]:.3f})")


if __name__ == "__main__":
    main()
