"""What each layer is worth by all that was measured of it, over several runs, and which of these rank layers alike.

    python benchmarks/layer_table.py DIAGNOSIS SWEEP... [--layers]

From the diagnosis come Block Influence, gradients and recovery, from the sweeps what removing, exchanging, repeating
and quantising each layer costs in nats a token; of a change that several runs measured the last one counts. Of each two
the rank correlation over the layers that both speak of is printed with its interval, by Fisher's transformation over
layers, and its p against random orders, Holm's over all pairs. `--layers` prints the table by layer too.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import combinations
from pathlib import Path

from layerwise.measure.contrasts.layer_agreement import change_of
from layerwise.measure.stats.agreement import rankings
from layerwise.measure.stats.effects import POOLED
from layerwise.measure.stats.ranks import rank_correlation
from layerwise.measure.stats.statistics import holm
from layerwise.plan import Plan
from layerwise.results import Rows, Run

OF_DIAGNOSIS = {
    "block_influence": "Block Influence",
    "gate_gradient": "gradient of a gate",
    "taylor": "Taylor, of weights",
    "recovery": "recovery",
}


def of_sweep(folder: Path) -> dict[str, dict[int, float]]:
    """What each change of a single layer costs, by its name and the layer."""
    costs: dict[str, dict[int, float]] = defaultdict(dict)
    with Run.open(folder) as run:
        effects = Rows(run.store.scores("effect")).where(metric="delta_nll", task=POOLED) or run.store.scores("effect")
        records = run.store.plans()
    by_plan = {row.plan: row.value for row in effects if row.metric == "delta_nll"}
    depth = 1 + max(max(Plan.parse(record.plan).layers()) for record in records)
    for record in records:
        change = change_of(record, depth) if record.plan in by_plan else None
        if change is not None and change[1] is not None:
            # What the own bits are worth where all others are at a type falls with what is left to lose.
            sign = -1 if record.family == "bits_left_out" else 1
            costs[change[0]][change[1]] = sign * by_plan[record.plan]
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("diagnosis", type=Path)
    parser.add_argument("sweeps", type=Path, nargs="+")
    parser.add_argument("--layers", action="store_true")
    given = parser.parse_args()
    with Run.open(given.diagnosis) as run:
        ranked = rankings(run.store.scores())
    table = {words: dict(ranked[name]) for name, words in OF_DIAGNOSIS.items() if name in ranked}
    for folder in given.sweeps:
        table = {**of_sweep(folder), **table}
    table = {name: values for name, values in table.items() if len(set(values.values())) > 1}
    pairs = {}
    for one, other in combinations(table, 2):
        shared = sorted(table[one].keys() & table[other].keys())
        found = rank_correlation(*([table[name][layer] for layer in shared] for name in (one, other)), shuffles=20_000)
        if found is not None:
            pairs[one, other] = len(shared), found
    adjusted = holm([each.p for _, each in pairs.values()])
    for ((one, other), (count, each)), p in zip(pairs.items(), adjusted, strict=True):
        print(f"{one} | {other} | {count} layers | {each.value:+.2f} [{each.low:+.2f}, {each.high:+.2f}] | {p:.3g}")
    for layer in sorted({layer for values in table.values() for layer in values}) if given.layers else ():
        print(layer, *(f"{name} {values[layer]:.4g}" for name, values in table.items() if layer in values), sep=" | ")


if __name__ == "__main__":
    main()
