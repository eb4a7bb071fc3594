"""Plans of the demo model for `layerwise heal`: one layer left out after the other, the one that costs least next.

    python benchmarks/heal_plans.py --layers 9 8 6

The text is of the half that the demo learned from, so that the text of a report of healing has no part in the choice.
"""

from __future__ import annotations

import argparse

import layerwise
from layerwise.experiments.reporter import Silent
from layerwise.plan import Plan, edits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[9, 8])
    parser.add_argument("--model", default="demo")
    options = parser.parse_args()
    stack = layerwise.load(options.model)
    text = layerwise.demo_corpus("train", texts=40, questions=40, seed=7)
    plan = Plan.identity(stack.depth)
    while len(plan.steps()) > min(options.layers):
        tried = {str(edits.skip(plan, layer)): layer for layer in plan.layers()}
        result = layerwise.sweep(
            stack,
            text,
            families=(),
            plan=tuple(tried),
            run=f"/tmp/heal_plans/{stack.depth}-{len(plan.steps())}",
            overwrite=True,
            reporter=Silent(),
        )
        costs = {
            row.plan: row.value
            for row in result.rows
            if (row.measure, row.task, row.metric) == ("effect", "all", "delta_nll") and row.plan in tried
        }
        best = min(costs, key=lambda each: costs[each])
        plan = Plan.parse(best)
        chosen = "  <- chosen" if len(plan.steps()) in options.layers else ""
        print(f"{len(plan.steps()):2} layers: {best}, {costs[best]:+.3f} nats a token{chosen}", flush=True)


if __name__ == "__main__":
    main()
