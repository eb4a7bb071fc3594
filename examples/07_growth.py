"""A custom growth schedule: which layers train when, its cost, and its result.

    python examples/07_growth.py

A vision transformer is trained from random weights, once with all layers and once in two phases, with the same number
of floating-point operations. One seed is not enough evidence: `layerwise run growth` has controls and more seeds.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import layerwise
from layerwise.data.vision.digits import digits
from layerwise.measure.cost.flops import model_cost
from layerwise.plan.schedule import GrowthSchedule, Phase, chart, explain, preset, share_of_uniform, steps_for
from layerwise.stack import weight_hash
from layerwise.train.recipe import GrowthExtension, Settings, grown
from layerwise.train.training import Base, train

STEPS = 200
ALL = tuple(range(12))
TOP_FIRST = GrowthSchedule(
    "top-first",
    depth=12,
    phases=(
        Phase("upper half", share=0.5, trains=ALL[6:], embedding=False),  # no backward pass below layer 6
        Phase("all", share=0.5, trains=ALL),
    ),
)


def main() -> None:
    """Print the schedule, its cost, and the final losses."""
    stack = layerwise.load("demo-vit")
    base = Base(partial(layerwise.load, "demo-vit"), weight_hash(stack.model))
    cost = model_cost(stack)
    print(explain(TOP_FIRST))
    print(chart(TOP_FIRST, 60))
    share = share_of_uniform(TOP_FIRST, cost)
    print(f"on average, a step takes {share:.0%} of the operations of a step of uniform training\n")

    splits = digits("crop")
    for schedule in (preset("uniform", 12), TOP_FIRST):
        steps = steps_for(schedule, cost, STEPS)
        settings = Settings(batch_size=32, learning_rate=1e-3, epochs=steps * 32 / len(splits.train), evals=4)
        recipe = replace(grown(settings, GrowthExtension(schedule, steps, cost)), from_scratch=True)
        with tempfile.TemporaryDirectory() as folder:
            done = train(base, splits, recipe, seed=0, folder=Path(folder))
        looked = [moment.loss for moment in done.history if moment.kind == "validation"]
        print(
            f"{schedule.name}: {done.steps} steps, {done.figures['flops']:.2e} operations, validation {looked[-1]:.3f}"
        )


if __name__ == "__main__":
    main()
