"""Speed of the playground: the first token under new plans, and the time until every layer has an interval.

    python benchmarks/play.py [MODEL]

Prints the ratio of medians (plan / original) of the time to the first token, in interleaved requests, the seconds until
the strip is complete, and how long a canceled request occupies the worker, in forward passes.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from statistics import median

import torch

from layerwise import load
from layerwise.measure.interventions.progressive import ProgressiveImportance
from layerwise.plan import Plan
from layerwise.studies.play.generation import Generator, PromptSettings
from layerwise.studies.play.playground import Playground
from layerwise.studies.play.worker import Item, Worker

ROUNDS = 20
PROMPT = "The capital of France is the city in which most of the people of the country would like to live, because"


async def collect(worker: Worker, generator: Generator, plan: Plan, seed: int) -> list[Item]:
    decoding = PromptSettings(f"{PROMPT} {seed}", False, 2, 0.0, seed)
    return [item async for item in worker.stream(lambda job: generator.compare(job, plan, decoding))]


async def time_first_tokens(playground: Playground) -> tuple[float, float]:
    """Return the median seconds to the first token of the original model and under plans not seen before."""
    worker, generator, draw = Worker(), Generator(playground.stack), random.Random(0)
    depth, times = playground.stack.depth, {"original": [], "plan": []}
    for seed in range(ROUNDS + 2):
        order = list(range(depth))
        draw.shuffle(order)
        for item in await collect(worker, generator, Plan.of(order), seed):
            if "end" in item and seed >= 2:
                times[item["column"]].append(item["end"]["first_token_ms"])
    worker.close()
    return median(times["original"]), median(times["plan"])


async def time_cancel(playground: Playground) -> tuple[float, float]:
    """Return the median milliseconds from a cancel to the end of the job, and of a forward pass of one token."""
    worker, generator = Worker(), Generator(playground.stack)
    waits, passes = [], []
    for seed in range(ROUNDS):
        decoding = PromptSettings(f"{PROMPT} {seed}", False, 64, 0.0, seed)
        stream = worker.stream(lambda job, d=decoding: generator.compare(job, playground.identity, d))
        stamps = []
        async for item in stream:
            if "token" in item:
                stamps.append(time.perf_counter())
            if len(stamps) == 4:
                break
        passes.append(1000 * (stamps[-1] - stamps[0]) / 3)
        began = time.perf_counter()
        await stream.aclose()
        while not worker.is_idle:
            await asyncio.sleep(0.0005)
        waits.append(1000 * (time.perf_counter() - began))
    worker.close()
    return median(waits), median(passes)


def time_strip(playground: Playground) -> tuple[float, float]:
    """Return the seconds until every layer has an interval, and until all of the text is read."""
    importance = ProgressiveImportance(playground.stack, playground.data)
    began = time.perf_counter()
    with torch.inference_mode():
        importance.measure_round()
        first = time.perf_counter() - began
        while not importance.is_complete:
            importance.measure_round()
    assert all(score.low is not None for score in importance.scores.values())
    return first, time.perf_counter() - began


def main() -> None:
    location = sys.argv[1] if len(sys.argv) > 1 else "demo"
    playground = Playground.open(load(location), location, None, ())
    original, plan = asyncio.run(time_first_tokens(playground))
    print(f"{location}: first token {original:.1f} ms, under a new plan {plan:.1f} ms, ratio {plan / original:.2f}")
    waited, one = asyncio.run(time_cancel(playground))
    print(f"canceled after {waited:.1f} ms; a forward pass takes {one:.1f} ms, ratio {waited / one:.2f}")
    first, full = time_strip(playground)
    print(f"every layer has an interval after {first:.1f} s; all of the text is read after {full:.1f} s")


if __name__ == "__main__":
    main()
