"""Whether a swarm knows what missing layers cost: the estimate of a sweep against sets that it never measured.

    python benchmarks/missing_layers.py                  # the demo model, its own text, about two minutes
    python benchmarks/missing_layers.py --unseen 200 --tokens 1000

One sweep measures every single layer and 480 random sets of up to half of the layers. Another one measures random sets
that are not among them, on the same text. Of those, between 85 and 95 % should cost what the interval of 90 % says, and
their order should be that of the estimates (rank correlation at least 0.9).
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from scipy.stats import spearmanr

import layerwise
from layerwise.plan.families import random_subsets
from layerwise.swarm.estimate import estimate_of_run


def main() -> None:
    """Sweep twice and print how the estimate of the first sweep does on the sets of the second."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=2000, help="tokens of text that every set is measured on")
    parser.add_argument("--unseen", type=int, default=400, help="sets that are predicted, about")
    parser.add_argument("--seed", type=int, default=1, help="which sets are predicted")
    options = parser.parse_args()
    stack, corpus = layerwise.load("demo"), layerwise.demo_corpus()
    measured = {member.plan for member in random_subsets(stack.depth)}
    unseen = [member.plan for member in random_subsets(stack.depth, options.unseen * 3 // 2, options.seed)]
    chosen = tuple(str(plan) for plan in unseen if plan not in measured)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        families = ("leave_one_out", "random_subsets")
        common = {"tokens": options.tokens, "similarity": False}
        layerwise.sweep(stack, corpus, families=families, run=runs / "measured", **common)
        layerwise.sweep(stack, corpus, families=(), plan=chosen, run=runs / "unseen", **common)
        estimate, truth = estimate_of_run(runs / "measured"), estimate_of_run(runs / "unseen").measured
    sets = [missing for missing in truth if estimate.expected(missing).basis == "fitted"]
    expected = [estimate.expected(missing) for missing in sets]
    within = [each.low <= truth[missing][0] <= each.high for missing, each in zip(sets, expected, strict=True)]
    correlation = spearmanr([each.nats for each in expected], [truth[missing][0] for missing in sets])[0]
    widths = sorted(each.high - each.low for each in expected)
    print(f"{len(estimate.measured)} sets measured, {len(sets)} others predicted")
    print(f"within the interval of 90 %: {sum(within) / len(within):.1%} (bar: 85 to 95 %)")
    print(f"rank correlation: {correlation:.3f} (bar: 0.9); median width: {widths[len(widths) // 2]:.2f} nats")
    by_size = Counter(len(missing) for missing in sets)
    held = Counter(len(missing) for missing, is_within in zip(sets, within, strict=True) if is_within)
    print("missing layers: " + ", ".join(f"{size}: {held[size]} of {by_size[size]}" for size in sorted(by_size)))


if __name__ == "__main__":
    main()
