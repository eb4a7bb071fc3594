"""Measure what a frozen layer saves: a step of a growth phase relative to a full step, predicted and timed.

    python benchmarks/growth.py [--rounds 11] [--steps 3] [--width 256] [--batch 8] [--length 128] [--threads 1]

One training of a 12-layer Llama whose schedule consists of rounds: in every round each variant has a phase
of some steps, in a changing order, so that compared steps are close in time. A step is printed as a
share of the round's uniform step (median, minimum and maximum over rounds), next to the share of
floating-point operations that `layerwise.plan.schedule.cost` predicts. Times are wall time, and in the last
column processor time, which other processes disturb less. The first step of a phase is
excluded.

The prediction counts matrix products, so they must dominate: the width must not be small,
and a step must have many more tokens than a layer's width, or the optimizer, norms and embeddings
matter. Width 256, inner width 768 and 1,024 tokens per step suffice.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, TrainerCallback, TrainingArguments
from transformers.utils import logging

from layerwise.data.splits import Example, Examples, Splits
from layerwise.measure.cost.flops import model_cost
from layerwise.plan.schedule import GrowthSchedule, Phase
from layerwise.plan.schedule.cost import ModelCost, flops_per_token
from layerwise.stack import load
from layerwise.train.phases.runner import GrowthTrainer, growth_runner
from layerwise.train.recipe import GrowthExtension

DEPTH = 12
VOCABULARY = 2048

WAYS = {
    "uniform": Phase("uniform", 1.0, tuple(range(DEPTH))),
    "top half": Phase("top half", 1.0, tuple(range(6, DEPTH)), embedding=False),
    "frozen prefix": Phase("frozen prefix", 1.0, tuple(range(3, DEPTH)), embedding=False),
    "bottom half": Phase("bottom half", 1.0, tuple(range(6)), head=False),
    "top quarter": Phase("top quarter", 1.0, tuple(range(9, DEPTH)), embedding=False),
}
"""The ways of training."""

BARS = {"top quarter": 0.55}
"""Maximum time of a step, relative to a uniform one."""

TOLERANCE = 0.15
"""Maximum relative difference of a step from the prediction."""


class Noise(Examples):
    """Texts of random tokens."""

    def __init__(self, count: int, length: int) -> None:
        self.ids = torch.randint(0, VOCABULARY, (count, length))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Example:
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


class Stopwatch(TrainerCallback):
    """The wall and processor seconds of every optimizer step."""

    def __init__(self) -> None:
        self.seconds: list[tuple[float, float]] = []

    def on_step_begin(self, *_: object, **__: object) -> None:
        self.begun = _now()

    def on_step_end(self, *_: object, **__: object) -> None:
        wall, own = _now()
        self.seconds.append((wall - self.begun[0], own - self.begun[1]))


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def model(width: int, length: int) -> LlamaForCausalLM:
    """Make the model, always with the same weights."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=DEPTH,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=length,
            use_cache=False,
        )
    )


def rounds_of(rounds: int) -> GrowthSchedule:
    """Make a phase per variant and round, uniquely named, in an order drawn per round."""
    phases = [
        replace(WAYS[name], name=f"{name} {number}", share=1 / (rounds * len(WAYS)))
        for number in range(rounds)
        for name in random.Random(number).sample(list(WAYS), len(WAYS))
    ]
    return GrowthSchedule("rounds", DEPTH, tuple(phases))


def timed(options: argparse.Namespace, cost: ModelCost, folder: Path) -> dict[str, tuple[float, float]]:
    """Return the median wall and processor seconds of a step in each phase."""
    watch = Stopwatch()
    texts = Noise(options.batch, options.length)
    splits = Splits("noise", "noise", texts, texts, texts)
    stack = load(model(options.width, options.length))
    schedule = rounds_of(options.rounds)
    steps = len(schedule.phases) * (1 + options.steps)
    trainer = GrowthTrainer(
        runner=growth_runner(stack, GrowthExtension(schedule, steps, cost), splits, seed=0),
        stack=stack,
        args=TrainingArguments(
            output_dir=str(folder),
            max_steps=steps,
            per_device_train_batch_size=options.batch,
            learning_rate=1e-4,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=0,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            use_cpu=True,
        ),
        data_collator=splits.collate,
        train_dataset=texts,
        callbacks=[watch],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    found = {}
    for phase, (first, end) in zip(schedule.phases, schedule.bounds(steps), strict=True):
        wall, own = zip(*watch.seconds[first + 1 : end], strict=True)
        found[phase.name] = statistics.median(wall), statistics.median(own)
    return found


def main() -> None:
    """Time every variant and print measured and predicted shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"rounds": 11, "steps": 3, "width": 256, "batch": 8, "length": 128, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    cost = model_cost(load(model(options.width, options.length)), options.length)
    with tempfile.TemporaryDirectory() as folder:
        seconds = timed(options, cost, Path(folder))
    found = {name: [seconds[f"{name} {number}"] for number in range(options.rounds)] for name in WAYS}
    print(
        f"Llama of {DEPTH} layers, {options.width} wide, {options.batch} x {options.length} tokens per step, "
        f"{options.threads} thread(s), {options.rounds} rounds; a uniform step takes "
        f"{statistics.median(wall for wall, _ in found['uniform']) * 1000:.0f} ms"
    )
    for name, phase in WAYS.items():
        print(line(name, flops_per_token(phase, cost) / (3 * cost.total), found[name], found["uniform"]))


def line(name: str, predicted: float, found: list[tuple[float, float]], uniform: list[tuple[float, float]]) -> str:
    """Format a variant's predicted and measured share of a uniform step, and whether it meets the bars."""
    wall = [one[0] / other[0] for one, other in zip(found, uniform, strict=True)]
    own = [one[1] / other[1] for one, other in zip(found, uniform, strict=True)]
    measured = statistics.median(wall)
    within = "within" if abs(measured / predicted - 1) <= TOLERANCE else "NOT within"
    bar = f", at most {BARS[name]:.2f}: {'yes' if measured <= BARS[name] else 'NO'}" if name in BARS else ""
    return (
        f"{name:20} predicted {predicted:.3f}, measured {measured:.3f} (rounds {min(wall):.3f} to {max(wall):.3f}), "
        f"{measured / predicted - 1:+.0%}: {within} {TOLERANCE:.0%}{bar}; of the process {statistics.median(own):.3f}"
    )


if __name__ == "__main__":
    main()
