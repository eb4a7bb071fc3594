"""Compare the time of a sweep with its lower bound and with running the plans one by one.

    python benchmarks/sweep.py                          # the shape of SmolLM2-135M, 8 x 512 tokens, leave-one-out
    python benchmarks/sweep.py --family painters --rows 1 --length 128

A 30-layer Llama of width 576 with a vocabulary of 49,152 and random weights. The bound is (measured time of a layer x
layer evaluations) + (measured time of a head x plans), interleaved with the sweep, so
that a noisy machine affects all alike. The plain loop runs the model's own forward under each plan.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from layerwise.data.batches import IGNORED, Batch
from layerwise.data.text.tokens import Window
from layerwise.measure.interventions.sweep import CostMeter, sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import window_losses
from layerwise.plan import Plan
from layerwise.plan.families import family
from layerwise.stack import Stack, load
from layerwise.stack.executors.graph import Graph, build


def smol_shape() -> LlamaForCausalLM:
    """Return a Llama of SmolLM2-135M's shape with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


def random_batch(rows: int, length: int) -> Batch:
    """Draw random tokens, all but the first of each row scored."""
    ids = torch.randint(0, 49152, (rows, length), generator=torch.Generator().manual_seed(1))
    targets = torch.full_like(ids, IGNORED)
    targets[:, :-1] = ids[:, 1:]
    windows = tuple(Window(f"document-{row}", "random", 0, tuple(ids[row].tolist()), 1, length) for row in range(rows))
    return Batch(ids, torch.ones_like(ids), targets, windows)


def seconds(work: Callable[[], Any]) -> float:
    """Time `work`."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_megabytes() -> float:
    """Return the peak resident size of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one_plan_at_a_time(stack: Stack, plans: list[Plan], batch: Batch) -> None:
    """Run each plan in place and return the mean losses of the model's own logits."""
    for plan in plans:
        with stack.under(plan):
            logits = stack.model(**batch.inputs, use_cache=False).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch.targets.flatten(), ignore_index=IGNORED)


@dataclass
class Times:
    """Interleaved times in seconds."""

    layers: list[float] = field(default_factory=list)
    heads: list[float] = field(default_factory=list)
    sweeps: list[float] = field(default_factory=list)
    loops: list[float] = field(default_factory=list)

    def parts(self, stack: Stack, batch: Batch) -> None:
        """Time every layer once and the head three times."""
        captured = stack.capture(**batch.inputs)
        for layer in range(stack.depth):
            self.layers.append(seconds(partial(stack.apply, layer, captured.state, captured)))
        for _ in range(3):
            self.heads.append(seconds(partial(window_losses, stack, captured.state, batch)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="leave_one_out")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--loop-plans", type=int, default=6, help="plans of the plain loop to time; 0 skips it")
    options = parser.parse_args()

    model = smol_shape()
    stack = load(model)
    batch = random_batch(options.rows, options.length)
    reading = EvalData("random", "random", options.length, "next_token", (batch,))
    plans = [member.plan for member in family(options.family, stack.depth)]
    graph = build([Plan.identity(stack.depth), *plans])
    print(f"{options.family}: {len(graph.ends)} plans")
    print(f"layer evaluations: {graph.naive:,} one plan at a time, {graph.evaluations:,} at least")

    few = plans[:: max(1, len(plans) // options.loop_plans)] if options.loop_plans else []
    meters: list[CostMeter] = []
    times = Times()
    peak = 0.0
    with torch.inference_mode():
        for _ in range(options.repeats):
            times.parts(stack, batch)
            times.sweeps.append(
                seconds(partial(sweep, stack, plans, reading, progress=lambda meter, _: meters.append(meter)))
            )
            times.parts(stack, batch)
            # The plain loop holds all logits at once: the sweep's own peak is read before it first runs.
            peak = peak or peak_megabytes()
            if few:
                times.loops.append(seconds(partial(one_plan_at_a_time, stack, few, batch)))
    weights = sum(p.numel() * p.element_size() for p in model.parameters()) / 1e6
    tell(times, graph, meters[-1], meters[-1].layer_tokens // batch.size, peak, weights)
    if few:
        whole = statistics.median(times.loops) * graph.naive / sum(len(plan.steps()) for plan in few)
        ratio = whole / statistics.median(times.sweeps)
        print(
            f"one plan at a time: {whole:.1f} s (from {len(few)} plans, by layer evaluations) = {ratio:.2f} x the sweep"
        )


def tell(times: Times, graph: Graph, meter: CostMeter, made: int, peak: float, weights: float) -> None:
    """Print the results."""
    layer, head, took = map(statistics.median, (times.layers, times.heads, times.sweeps))
    bound = layer * graph.evaluations + head * graph.heads
    print(f"layer {layer * 1e3:.1f} ms (median of {len(times.layers)}), head and loss {head * 1e3:.0f} ms")
    print(f"layer evaluations made: {made:,} = {made / graph.evaluations:.4f} x the bound")
    print(f"sweep: {took:.1f} s = {took / bound:.3f} x the bound of {bound:.1f} s; most states live: {meter.most_live}")
    print(f"peak memory: {peak:,.0f} MB = model {weights:,.0f} MB + {peak - weights:,.0f} MB")


if __name__ == "__main__":
    main()
