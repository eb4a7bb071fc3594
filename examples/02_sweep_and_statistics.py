"""Which layers matter? Leave each one out, and say so only where the evidence does.

    python examples/02_sweep_and_statistics.py [MODEL]      a hub id, a folder, or the demo model when left out

The command `layerwise sweep` does this and more, and keeps every row in a run folder; here are its parts.
"""

from __future__ import annotations

import sys

import layerwise
from layerwise import Plan, families
from layerwise.data.demo import demo_corpus


def main(model: str = "demo") -> None:
    """Print what leaving out each layer costs, with its interval."""
    stack = layerwise.load(model)
    corpus = demo_corpus(texts=12, characters=300, questions=8)
    reading = layerwise.read(stack, corpus, tokens=4000)
    print(f"{reading.documents} documents, {reading.tokens} scored tokens")

    # One row for each plan and window: the loss in nats. Layers that plans share run once.
    members = families.leave_one_out(stack.depth)
    rows = layerwise.sweep(stack, members, reading)

    # Paired over documents against the model as trained; p-values are corrected for the number of plans.
    scores = layerwise.effects(rows, baseline=str(Plan.identity(stack.depth)))
    delta = {score.subject: score for score in scores if score.task == "all" and score.metric == "delta_nll"}

    print("left out   nats per token   95 % interval      p, corrected")
    for layer, member in enumerate(members):
        found = delta[str(member.plan)]
        verdict = "" if found.p_adjusted < 0.05 else f"   not resolvable below {found.resolution:.3f}"
        interval = f"[{found.low:+.3f}, {found.high:+.3f}]"
        print(f"layer {layer:<4} {found.value:+15.3f}   {interval:18} {found.p_adjusted:.4f}{verdict}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
