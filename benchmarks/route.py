"""Prompts batched by plan against the same prompts under one plan: what routing costs in throughput.

    python benchmarks/route.py --run runs/demo-route --prompts 256 --batch 8

The demo model and the router of a run of `layerwise search route demo`, on the demo's held-out questions, which are
mixed. In each turn all prompts are continued in each of these ways, in rotating order:

    routed      the router chooses, prompts of a plan run together, at most `--batch` at once
    one plan    the candidate whose layers are nearest to the router's mean, on all prompts in batches of as many
    identity    the model as trained

The throughput to keep is that of as many layers: time of the one plan, times the router's mean layers over its own.
What routing loses are full batches, the entering of plans, and the router's own time.
`--pool` prompts are waiting at once: with as many as the batch holds, its plans split a single batch.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable

import torch

from layerwise import PlanRouter, RoutedStack, load
from layerwise.data.demo.corpus import demo_corpus
from layerwise.plan import Plan
from layerwise.search.routing.router import written


def main() -> None:
    """Time every way in turns and print medians over turns of the ratios within each."""
    arguments = parsed()
    torch.set_num_threads(1)
    stack = load("demo")
    routed = RoutedStack(stack, PlanRouter.load(f"{arguments.run}/router.safetensors"))
    documents = demo_corpus(texts=0, questions=-(-arguments.prompts // 4), seed=1).documents
    order = torch.randperm(len(documents), generator=torch.Generator().manual_seed(0)).tolist()
    prompts = [documents[number].prompt for number in order][: arguments.prompts]
    options = {"max_new_tokens": arguments.tokens, "min_new_tokens": arguments.tokens, "do_sample": False}
    pools = [prompts[start : start + arguments.pool] for start in range(0, len(prompts), arguments.pool)]
    shares = Counter(routed.plans_of(prompts))
    whole = Plan.identity(stack.depth)

    def by_router() -> None:
        for pool in pools:
            routed.generate(pool, batch_size=arguments.batch, **options)

    def under(plan: Plan) -> Callable[[], None]:
        def work() -> None:
            for pool in pools:
                written(stack, plan, routed.encoded(pool), arguments.batch, **options)

        return work

    layers = sum(plan.cost().evaluations * count for plan, count in shares.items()) / len(prompts)
    near = min(routed.router.plans, key=lambda plan: abs(plan.cost().evaluations - layers))
    ways: dict[Plan | None, Callable[[], None]] = {None: by_router, **{plan: under(plan) for plan in {near, whole}}}
    kept, against_whole = [], []
    for turn in range(-1, arguments.turns):
        seconds: dict[Plan | None, float] = {}
        names = list(ways)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = time.perf_counter()
            ways[name]()
            seconds[name] = time.perf_counter() - start
        if turn >= 0:  # the first turn warms up
            kept.append(seconds[near] * layers / near.cost().evaluations / seconds[None])
            against_whole.append(seconds[whole] / seconds[None])
    print(f"{len(prompts)} prompts, {arguments.pool} at a time, batches of {arguments.batch}, {len(shares)} plans,")
    print(f"{layers:.2f} mean layers of {stack.depth}; {arguments.tokens} tokens each, {arguments.turns} turns")
    for words, values in (("one plan of as many layers", kept), ("the model as trained", against_whole)):
        low, high = min(values), max(values)
        print(f"throughput of routing over that of {words}: {statistics.median(values):.3f} ({low:.3f} to {high:.3f})")


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True, help="run folder of layerwise search route demo")
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--pool", type=int, default=256, help="prompts that wait at once")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--turns", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
