"""Two sweeps of one model in two data types: what the second one changes of the effects of plans, and of decisions.

    layerwise sweep MODEL --text FILE --families leave_one_out --dtype float32 --run one
    layerwise sweep MODEL --text FILE --families leave_one_out --dtype bfloat16 --run two
    python benchmarks/data_types.py one two

An effect is the loss of a plan less that of the trained order, in nats a token; its bias is the effect in the second
run less that in the first, over the same documents, with an interval of its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from layerwise.measure.stats.statistics import paired_bootstrap
from layerwise.plan import Plan
from layerwise.results import Run

Numbers = NDArray[np.float64]


def losses_of(folder: Path) -> dict[str, dict[tuple[str, int], tuple[float, int]]]:
    """Nats and tokens of each document and window, by plan."""
    losses: dict[str, dict[tuple[str, int], tuple[float, int]]] = {}
    with Run.open(folder) as run:
        for loss in run.store.losses():
            losses.setdefault(loss.plan, {})[loss.document, loss.window] = loss.nll, loss.tokens
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs=2)
    runs: list[Any] = [losses_of(folder) for folder in parser.parse_args().runs]
    plans = [plan for plan in runs[0] if plan in runs[1]]
    depth = 1 + max(max(Plan.parse(plan).layers()) for plan in plans)
    trained = str(Plan.identity(depth))
    windows = sorted(runs[0][trained])
    documents = sorted({name for name, _ in windows})
    row = {name: number for number, name in enumerate(documents)}

    def by_document(run: Any, plan: str, cell: int) -> Numbers:
        sums = np.zeros(len(documents))
        for window in windows:
            sums[row[window[0]]] += run[plan][window][cell]
        return sums

    tokens = by_document(runs[0], trained, 1)
    plans.remove(trained)
    effects = [np.array([by_document(run, plan, 0) - by_document(run, trained, 0) for plan in plans]) for run in runs]
    first, second, bias = (paired_bootstrap(each, tokens, seed=0) for each in (*effects, effects[1] - effects[0]))
    halves = [(each.high - each.low) / 2 for each in (first, second)]
    sizes = np.abs(bias.value)
    decided = [(each.low > 0).astype(int) - (each.high < 0) for each in (first, second)]
    print(f"{len(plans)} plans, {tokens.sum():,.0f} tokens in {len(documents)} documents, against {trained}")
    print(
        f"bias: {np.median(sizes):.4f} nats in the median, {sizes.max():.4f} at most ({plans[sizes.argmax()]}); its "
        f"interval excludes zero for {((bias.low > 0) | (bias.high < 0)).sum()}"
    )
    print(
        f"bias over half the width of an interval: {np.median(sizes / halves[0]):.3f} in the median, "
        f"{(sizes / halves[0]).max():.3f} at most"
    )
    print(f"width of an interval over that of the first run: {np.median(halves[1] / halves[0]):.3f} in the median")
    print(
        f"plans whose effect is above, below or not told from zero otherwise: {(decided[0] != decided[1]).sum()}; "
        f"rank correlation {spearmanr(first.value, second.value).statistic:.4f}"
    )


if __name__ == "__main__":
    main()
