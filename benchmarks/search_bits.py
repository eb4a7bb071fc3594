"""Compare the types that a search chooses with allocations that need no search, on fresh text.

    python benchmarks/search_bits.py MODEL [--text TEXT] [--tokens N] [--budget bytes=0.4x] [--edits bits] [--seeds 10]
                                     [--runs FOLDER]

Each seed splits the text again, draws other random allocations, and is a separate run (`layerwise search`); a command
that was stopped resumes with the remaining seeds. For every rule it counts in how many seeds its allocation
is worse than the chosen one, better, equal within .005 nats, or not resolvable; the number is its mean difference
from the chosen one on held-out text, in nats per token.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean

import layerwise
from layerwise.results import Rows
from layerwise.results.vocabulary import ABOVE_CHOSEN, CONTROL_PLAN, DELTA, REPORT, SEARCH
from layerwise.studies.search.page import CONTROLS, describe_verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--budget", default="bytes=0.4x")
    parser.add_argument("--edits", default="bits")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--runs", type=Path, default=Path("runs/search-bits"))
    given = parser.parse_args()
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    above: dict[str, list[float]] = defaultdict(list)
    for seed in range(given.seeds):
        result = layerwise.search(
            given.model,
            given.text,
            given.budget,
            edits=tuple(given.edits.split(",")),
            tokens=given.tokens,
            max_length=given.max_length,
            seed=seed,
            run=given.runs / f"seed-{seed}",
        )
        rows = Rows(result.rows).where(measure=SEARCH)
        own = rows.one(metric=DELTA, task=REPORT, plan=str(result.best))
        print(f"seed {seed}: {result.best}, {own.value:+.4f} [{own.low:+.4f}, {own.high:+.4f}]", flush=True)
        for name in CONTROLS:
            row = rows.one(metric=ABOVE_CHOSEN, variant=name, task=REPORT)
            if row is not None:
                verdicts[name][describe_verdict(row, 0.05).split(" below")[0]] += 1
                above[name].append(row.value)
            elif rows.where(metric=CONTROL_PLAN, variant=name, plan=str(result.best)):
                verdicts[name]["the same plan"] += 1
    for name, counts in verdicts.items():
        value = f"{mean(above[name]):+.4f} above the chosen one" if above[name] else ""
        print(f"{CONTROLS[name]:24} {value:30} {', '.join(f'{count} {word}' for word, count in counts.most_common())}")


if __name__ == "__main__":
    main()
