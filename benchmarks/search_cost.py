"""Compare the cost of a search with EvoPress' schedule, and their losses on fresh text, paired by seed.

    python benchmarks/search_cost.py --drop 3 --table /tmp/drop3.npz          # the demo model, skipping 3 of 12 layers
    python benchmarks/search_cost.py --drop 6 --table /tmp/drop6.npz
    python benchmarks/search_cost.py --count                                  # the tokens of the authors' settings

The losses of every set of that size on every document are computed once (`--table` stores them), so
that ten searches by each method take seconds with the numbers of real evaluations. Each seed splits the
documents into search text and fresh text, the same for both methods.

EvoPress is its authors' script (scripts/run_drop_search.sh): k (n - k) / 1.5 generations, 32 offspring, 64 random sets
at first, survivors 2 and 1, the parent in the last selection, a fresh minibatch per selection, every plan evaluated
alone. Its tokens (2,048 at first, 2,048 and 32,768 per selection) are divided by 16, as documents are shorter.
The search is the default `layerwise search`, on as much text as EvoPress' last selection; its cost
counts shared prefixes once, as the engine computes them (`layerwise.search.evaluator`).
"""

from __future__ import annotations

import argparse
import time
from itertools import combinations
from pathlib import Path
from random import Random

import numpy as np
import torch

import layerwise
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.search.evaluator import GraphEvaluator, WorstCaseEvaluator
from layerwise.search.evolve import FIRST_SETS, MAX_EXCHANGES, OFFSPRING, count_generations
from layerwise.search.greedy import Space, greedy, rank_plans
from layerwise.search.rungs import RungSettings

SCALE = 16
SMALL, LARGE = 2048 // SCALE, 32768 // SCALE


class TableEvaluator(WorstCaseEvaluator):
    """Losses from the table, with the cost that the engine would have."""

    def __init__(self, table: dict[Plan, Numbers], tokens: Numbers, rungs: list[list[int]]) -> None:
        super().__init__([tokens[rung] for rung in rungs], [int(tokens[rung].sum()) for rung in rungs])
        self.table, self.rungs = table, rungs

    def evaluate(self, plans: list[Plan], rung: int, parent: Plan) -> Numbers:
        super().evaluate(plans, rung, parent)
        return np.array([self.table[plan][self.rungs[rung]] for plan in plans])


def sets(depth: int, drop: int) -> list[Plan]:
    """Return the identity plan and every plan without 1 to `drop` layers."""
    return [
        Plan.of([layer for layer in range(depth) if layer not in out])
        for count in range(drop + 1)
        for out in combinations(range(depth), count)
    ]


def computed(drop: int, documents: int, table: Path | None) -> tuple[list[Plan], Numbers, Numbers]:
    """Compute the losses of every set on every document (plans, documents), and the tokens of the documents."""
    torch.set_num_threads(1)
    stack = layerwise.load("demo")
    plans = sets(stack.depth, drop)
    if table is not None and table.exists():
        kept = np.load(table)
        return plans, kept["nll"], kept["tokens"]
    corpus = layerwise.demo_corpus("train", texts=documents, questions=0, characters=60)
    evaluator = GraphEvaluator(stack, [tokenize(stack, corpus)])
    began = time.process_time()
    nll = evaluator.evaluate(plans, 0, plans[0])
    spent = evaluator.spent
    print(
        f"table: {len(plans)} plans, {spent.layer_tokens:,} layer-tokens, {time.process_time() - began:.0f} s of "
        "processor time"
    )
    if table is not None:
        np.savez(table, nll=nll, tokens=evaluator.tokens[0])
    return plans, nll, evaluator.tokens[0]


def evopress(space: Space, nll: dict[Plan, Numbers], tokens: Numbers, pool: list[int], seed: int) -> tuple[Plan, int]:
    """Run EvoPress' schedule; return its plan and layer-tokens."""
    draw = Random(seed)
    spent = 0

    def best(plans: list[Plan], wanted: int, count: int) -> list[Plan]:
        nonlocal spent
        order, chosen, total = draw.sample(pool, len(pool)), [], 0
        for document in order:
            if total >= wanted:
                break
            chosen.append(document)
            total += int(tokens[document])
        spent += total * sum(len(plan.steps()) for plan in plans)
        means = {plan: nll[plan][chosen].sum() for plan in plans}
        return sorted(plans, key=means.__getitem__)[:count]

    def plan_of(out: set[int]) -> Plan:
        return Plan.of([layer for layer in range(space.depth) if layer not in out])

    drop = space.depth - int(space.limit)
    starts: dict[Plan, None] = {}
    while len(starts) < FIRST_SETS:
        starts.setdefault(plan_of(set(draw.sample(range(space.depth), drop))))
    (parent,) = best(list(starts), SMALL, 1)
    for _ in range(count_generations(space)):
        young: dict[Plan, None] = {}
        while len(young) < OFFSPRING:
            out = set(range(space.depth)) - set(parent.order())
            for _ in range(min(draw.randint(1, MAX_EXCHANGES), draw.randint(1, MAX_EXCHANGES))):
                goes, comes = draw.choice(sorted(set(range(space.depth)) - out)), draw.choice(sorted(out))
                out = out - {comes} | {goes}
            if plan_of(out) != parent:
                young.setdefault(plan_of(out))
        (parent,) = best([*best(list(young), SMALL, 2), parent], LARGE, 1)
    return parent, spent


def counted() -> None:
    """Print the maximum cost of a search on 32,768 tokens and that of EvoPress' schedule with its authors' tokens."""
    tokens = 32768
    parts = [np.full(count, tokens / 256) for count in (16, 48, 192)]
    for depth, drop in ((12, 3), (12, 6), (32, 8)):
        space = Space(depth, ("drop",), lambda plan: float(len(plan.steps())), depth - drop)
        worst = WorstCaseEvaluator(parts, [int(part.sum()) for part in parts])
        for _ in greedy(worst, space, settings=RungSettings(alpha=0.0)):
            pass
        rounds = count_generations(space) * (OFFSPRING * 2048 + 3 * tokens) + FIRST_SETS * 2048
        theirs = rounds * (depth - drop)
        print(
            f"{drop} of {depth} layers: the search at most {worst.spent.layer_tokens:,} layer-tokens, EvoPress "
            f"{theirs:,}: {theirs / worst.spent.layer_tokens:.1f} x"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drop", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--table", type=Path, default=None)
    parser.add_argument("--searched", type=int, default=LARGE, help="tokens of the search text")
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    if options.count:
        counted()
        return
    plans, values, tokens = computed(options.drop, options.documents, options.table)
    table = dict(zip(plans, values, strict=True))
    whole, depth = plans[0], len(plans[0].steps())
    space = Space(depth, ("drop",), lambda plan: float(len(plan.steps())), depth - options.drop)
    gains, ratios, naive, optimal = [], [], [], []
    for seed in range(options.seeds):
        order = Random(seed).sample(range(len(tokens)), len(tokens))
        pool, fresh = order[: 2 * len(order) // 3], order[2 * len(order) // 3 :]
        searched, total = [], 0
        for document in pool:
            if total >= options.searched:
                break
            searched.append(document)
            total += int(tokens[document])
        count = len(searched)
        rungs = [searched[: count // 16], searched[count // 16 : count // 4], searched[count // 4 :]]
        evaluator = TableEvaluator(table, tokens, rungs)
        ours = next(iter(rank_plans(greedy(evaluator, space), space)))
        theirs, cost = evopress(space, table, tokens, pool, seed)
        loss = {plan: (table[plan] - table[whole])[fresh].sum() / tokens[fresh].sum() for plan in plans}
        size = [plan for plan in plans if len(plan.steps()) == space.limit]
        exhaustive = min(size, key=lambda plan: table[plan][searched].sum())
        gains.append(loss[ours] - loss[theirs])
        ratios.append(cost / evaluator.spent.layer_tokens)
        naive.append(sum(len(plan.steps()) for plan, rung in evaluator._known if rung == 0) * total)
        optimal.append(ours == exhaustive)
        print(
            f"seed {seed}: search {evaluator.spent.layer_tokens:,} layer-tokens, +{loss[ours]:.4f} nats on fresh text; "
            f"EvoPress {cost:,}, +{loss[theirs]:.4f}; ratio {ratios[-1]:.1f}; {ours} / {theirs}"
        )
        naive[-1] /= evaluator.spent.layer_tokens
    mean, error = np.mean(gains), np.std(gains, ddof=1) / np.sqrt(len(gains))
    from scipy.stats import t

    reach = t.ppf(0.975, len(gains) - 1) * error
    print(f"EvoPress' layer-tokens / the search's: mean {np.mean(ratios):.1f}, least {min(ratios):.1f}")
    print(f"every candidate by itself on all text / the search's: mean {np.mean(naive):.1f}, least {min(naive):.1f}")
    low, high = mean - reach, mean + reach
    print(f"loss on fresh text, search less EvoPress: {mean:+.5f} [{low:+.5f}, {high:+.5f}] nats per token")
    print(f"the search is the exhaustive optimum of its text in {sum(optimal)} of {len(optimal)} seeds")


if __name__ == "__main__":
    main()
