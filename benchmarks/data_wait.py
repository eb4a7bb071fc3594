"""How long a step of a pretraining waits for its data: at most 5 % of the step, on an accelerator.

    python benchmarks/data_wait.py [--size small] [--batch 256] [--steps 40] [--device cuda] [--precision bfloat16]

The Trainer of `layerwise train elc` as it is, with segments of random ids; what is timed is how long each batch is
waited for, from the moment the step before it is done (the device has caught up), beside the whole step. The first
quarter of the steps warms up.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import TrainerCallback

from layerwise.data.text.documents import Document
from layerwise.data.text.segments import pretraining_text
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.train.pretrain.recipe import PRESETS, pretraining_recipe
from layerwise.train.pretrain.trainer import trainer_of

BAR = 0.05
WORDS = 4_000


class Waits(TrainerCallback):
    """The seconds of every step."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.ended: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if self.device != "cpu":
            torch.get_device_module(self.device).synchronize()
        self.ended.append(time.perf_counter())


class Watched:
    """A data loader whose every batch is timed."""

    def __init__(self, loader: Any, waited: list[float]) -> None:
        self.loader = loader
        self.waited = waited

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        while True:
            begun = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.waited.append(time.perf_counter() - begun)
            yield batch


def documents(first: int, count: int) -> list[Document]:
    """Texts of words that are drawn."""
    chance = torch.Generator().manual_seed(first)
    numbers = torch.randint(WORDS, (count, 600), generator=chance).tolist()
    return [Document(str(first + row), " ".join(f"w{number}" for number in each)) for row, each in enumerate(numbers)]


def main() -> int:
    """Train some steps and print the share; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=tuple(PRESETS), default="small")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    options = parser.parse_args()
    parts = {"train": documents(0, 400), "validation": documents(400, 8), "test": documents(408, 8)}
    tokenizer = train_wordpiece((each.text for each in parts["train"][:40]), vocabulary=2_048)
    text = pretraining_text(tokenizer, "drawn words", parts)
    recipe = pretraining_recipe(
        options.size,
        "elc",
        steps=options.steps,
        batch_size=options.batch,
        gradient_accumulation_steps=1,
        short=1.0,
        precision=options.precision,
        vocabulary=None,
    )
    waited: list[float] = []
    watch = Waits(options.device)
    more = {"eval_strategy": "no", "save_strategy": "no", "use_cpu": options.device == "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(tokenizer, text, recipe, 0, Path(folder), arguments=more)
        own = trainer.get_train_dataloader
        trainer.get_train_dataloader = lambda: Watched(own(), waited)  # type: ignore[method-assign,return-value,assignment]
        trainer.add_callback(watch)
        trainer.train()
    first = options.steps // 4
    steps = [after - before for before, after in zip(watch.ended[first:], watch.ended[first + 1 :], strict=False)]
    waits = waited[first + 1 : first + 1 + len(steps)]
    share = sum(waits) / sum(steps)
    print(f"ELC-BERT {options.size}, batch {options.batch}, {options.precision} on {options.device}")
    print(f"a step takes {1e3 * median(steps):.2f} ms, and waits {1e3 * median(waits):.2f} ms for its batch")
    print(f"waiting: {share:.2%} of the steps (bar: {BAR:.0%} at most) {'met' if share <= BAR else 'missed'}")
    return 0 if share <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
