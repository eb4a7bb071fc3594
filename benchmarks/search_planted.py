"""Test whether a search finds planted useless or harmful layers and the best set of interacting layers.

    python benchmarks/search_planted.py

A random Llama of 32 layers in which 6 do nothing and 2 are noise, on text that it generated without the noise, with the
real engine; and simulated objectives of 16 layers with single and pair effects, compared with all sets of that size.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]

from layerwise.plan import Plan  # noqa: E402
from layerwise.search.evaluator import GraphEvaluator  # noqa: E402
from layerwise.search.greedy import Space, greedy, rank_plans  # noqa: E402
from layerwise.search.rungs import split_rungs  # noqa: E402
from search.planted_objective import PlantedObjective  # noqa: E402
from search.planted_stack import planted_search  # noqa: E402

IDENTITY, HARMFUL = (3, 8, 13, 17, 24, 29), (10, 21)


def layers(plan: Plan) -> float:
    return float(len(plan.steps()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stacks", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    for seed in range(options.stacks):
        began = time.process_time()
        stack, text = planted_search(IDENTITY, HARMFUL, depth=32, seed=seed, windows=64)
        evaluator = GraphEvaluator(stack, split_rungs(text, seed))
        space = Space(32, ("drop",), layers, 24)
        best = next(iter(rank_plans(greedy(evaluator, space), space)))
        gone = sorted(set(range(32)) - best.layers())
        spent = evaluator.spent
        print(
            f"stack {seed}: gone {gone}, {'exactly' if gone == sorted(IDENTITY + HARMFUL) else 'NOT'} those planted; "
            f"{spent.layer_tokens:,} layer-tokens, {spent.naive / spent.layer_tokens:.1f} x fewer than plan by plan, "
            f"{time.process_time() - began:.0f} s of processor time",
            flush=True,
        )
    for coupling in (0.3, 0.5, 1.0):
        for dropped in (4, 6):
            right = 0
            for seed in range(options.seeds):
                objective = PlantedObjective(16, coupling=coupling, seed=seed, documents=16)
                space = Space(16, ("drop",), layers, 16 - dropped)
                best = next(iter(rank_plans(greedy(objective, space), space)))
                right += abs(objective.true(best) - objective.optimum(dropped)) < 1e-9
            print(
                f"16 layers, {dropped} go, pair effects {coupling:g} x the single ones: the optimum in {right} "
                f"of {options.seeds} seeds",
                flush=True,
            )


if __name__ == "__main__":
    main()
