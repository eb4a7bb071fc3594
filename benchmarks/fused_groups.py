"""What groups that run as one save: a token behind a cache, whole passes, and memory; interleaved, in ratios.

    python benchmarks/fused_groups.py
    python benchmarks/fused_groups.py --accelerator

The first: a 12-layer, 512-wide Llama with random weights, on one thread, a plan of two groups of four over 8 layers.
Each round times three sides in turns, in an order that changes: the identity plan, the plan with its groups in turn,
and the plan with its groups as one. Ratios are of medians of processor time, and of the fastest tenths, which a machine
with other work on it disturbs less.

The second: a Llama of the shape of 1 billion parameters, in bfloat16, pairs and fours over half of its layers, batch 1,
each side's token replayed as a CUDA graph over a static cache.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from layerwise.measure.cost.pass_time import Setting, TimedPlan, time_rows
from layerwise.plan import Plan
from layerwise.stack import Stack, load

Sides = dict[str, tuple[str, bool]]


def model(**shape: Any) -> LlamaForCausalLM:
    """A Llama with random weights."""
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(max_position_embeddings=4096, **shape)).eval()


def storages(stack: Stack) -> int:
    """The bytes of all storages that parameters stand in, each counted once."""
    found = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in stack.model.parameters()}
    return sum(found.values())


def ratios(name: str, times: dict[str, list[float]], side: str = "fused") -> None:
    """Print the milliseconds of every side, and `side` beside each of the others."""
    middle = {each: statistics.median(values) for each, values in times.items()}
    fast = {each: sorted(values)[len(values) // 10] for each, values in times.items()}
    print(f"{name}: " + ", ".join(f"{each} {1000 * value:.2f} ms" for each, value in middle.items()), end="; ")
    beside = [
        f"{side} / {other} {middle[side] / middle[other]:.3f} (fastest tenths {fast[side] / fast[other]:.3f})"
        for other in times
        if other != side
    ]
    print(", ".join(beside), flush=True)


def interleaved(stack: Stack, sides: Sides, rounds: int, work: Callable[[], list[float]]) -> dict[str, list[float]]:
    """The seconds that `work` reports under each side, in turns."""
    times: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        order = list(sides)[number % len(sides) :] + list(sides)[: number % len(sides)]
        for side in order:
            plan, fused = sides[side]
            with torch.inference_mode(), stack.under(plan, fused=fused):
                times[side] += work()
    return {side: times[side] for side in sides}


def timed(work: Callable[[], Any]) -> float:
    """The processor time of `work`, in seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def on_a_processor(rounds: int) -> None:
    """Decoding, prefill and memory on one thread."""
    torch.set_num_threads(1)
    stack = load(
        model(
            vocab_size=8192,
            hidden_size=512,
            intermediate_size=1408,
            num_hidden_layers=12,
            num_attention_heads=8,
            num_key_value_heads=8,
        )
    )
    plan = "0-1 (2|3|4|5) (6|7|8|9) 10-11"
    sides: Sides = {"identity": ("0-11", False), "in turn": (plan, False), "fused": (plan, True)}
    ids = torch.randint(3, 8192, (1, 513), generator=torch.Generator().manual_seed(0))
    network: Any = stack.model

    def tokens() -> list[float]:
        cache = network(input_ids=ids[:, :64], use_cache=True).past_key_values
        passes = [
            timed(lambda: network(input_ids=ids[:, 64:65], past_key_values=cache, use_cache=True)) for _ in range(8)
        ]
        return passes[2:]

    ratios("a token behind 64 others", interleaved(stack, sides, rounds, tokens))
    for length in (32, 64, 128, 512):

        def prefill(length: int = length) -> list[float]:
            passes = [timed(lambda: network(input_ids=ids[:, :length], use_cache=True)) for _ in range(3)]
            return passes[1:]

        ratios(f"{length} tokens of prefill", interleaved(stack, sides, max(4, rounds // 2), prefill))
    before = storages(stack)
    with stack.under(plan, fused=True):
        print(f"memory of the weights: fused / as they are {storages(stack) / before:.3f}")


def on_an_accelerator(rounds: int) -> None:
    """Decoding by CUDA graphs, batch 1."""
    if not torch.cuda.is_available():
        print("no CUDA device is seen: nothing was measured")
        return
    network: Any = model(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
    ).to("cuda", torch.bfloat16)
    stack = load(network)
    plans = {
        "pairs": "0-3 (4|5) (6|7) (8|9) (10|11) 12-15",
        "fours": "0-3 (4|5|6|7) (8|9|10|11) 12-15",
    }
    for name, plan in plans.items():
        sides = [TimedPlan(Plan.parse(plan)), TimedPlan(Plan.parse("0-15")), TimedPlan(Plan.parse(plan), fused=True)]
        rows = time_rows(stack, sides, Setting("decode", 1, 512), rounds=rounds)
        for label, milliseconds, ratio in zip(("in turn", "identity", "fused"), rows[::2], rows[1::2], strict=True):
            print(
                f"{name}, a token behind 512, {label}: {milliseconds.value:.3f} ms, in turn / {label} "
                f"{1 / ratio.value:.3f} ({1 / (ratio.high or 1):.3f} to {1 / (ratio.low or 1):.3f})",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--accelerator", action="store_true")
    options = parser.parse_args()
    (on_an_accelerator if options.accelerator else on_a_processor)(options.rounds)


if __name__ == "__main__":
    main()
