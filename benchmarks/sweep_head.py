"""What a sweep costs whose head reads a share of the scored tokens, against one whose head reads all.

    python benchmarks/sweep_head.py                       # the shape of SmolLM2-135M, leave-one-out, shares 1 and 0.25
    python benchmarks/sweep_head.py --rows 4 --shares 0.25 0.125 --rounds 5

A 30-layer, 576-wide Llama with a vocabulary of 49,152 and random weights: its head is about a third of a sweep. All
sides run in turns in this process. Printed are ratios of medians, of wall time and of processor time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, field

import torch
from shapes import smol_shape
from sweep import random_batch

from layerwise.measure.interventions.sweep import CostMeter, sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.token_sample import token_sample
from layerwise.plan import Plan
from layerwise.plan.families import family
from layerwise.stack import Stack, load


@dataclass
class Times:
    """Seconds of one side, a number a round: of all, of the processor, and of heads alone."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    heads: list[float] = field(default_factory=list)

    def add(self, stack: Stack, plans: list[Plan], text: EvalData) -> None:
        """Sweep once more."""
        meters: list[CostMeter] = []
        wall, processor = time.perf_counter(), time.process_time()
        sweep(stack, plans, text, progress=lambda meter, _: meters.append(meter))
        self.wall.append(time.perf_counter() - wall)
        self.processor.append(time.process_time() - processor)
        self.heads.append(meters[-1].head_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="leave_one_out")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.25])
    options = parser.parse_args()

    stack = load(smol_shape())
    text = EvalData("random", "random", options.length, "next_token", (random_batch(options.rows, options.length),))
    plans = [member.plan for member in family(options.family, stack.depth)]
    texts = {share: token_sample(text, share) for share in (1.0, *options.shares)}
    times = {share: Times() for share in texts}
    print(f"{options.family}: {len(plans)} plans, {text.tokens:,} scored tokens, {torch.get_num_threads()} thread(s)")
    for number in range(options.rounds):
        for share in list(texts)[:: 1 if number % 2 == 0 else -1]:
            times[share].add(stack, plans, texts[share])
            each = times[share]
            print(f"  share {share:g}: {each.wall[-1]:.1f} s, {each.heads[-1]:.1f} s of it in heads", flush=True)
    whole = times[1.0]
    for share, each in times.items():
        wall, processor = (statistics.median(kind) for kind in (each.wall, each.processor))
        read = sum(int(batch.scored.sum()) for batch in texts[share].batches)
        print(
            f"head on {read:,} tokens (share {share:g}): {wall:.1f} s = "
            f"{wall / statistics.median(whole.wall):.3f} x, processor {processor:.1f} s = "
            f"{processor / statistics.median(whole.processor):.3f} x; "
            f"{statistics.median(each.heads) / wall:.0%} of it in heads"
        )


if __name__ == "__main__":
    main()
