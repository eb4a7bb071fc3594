"""Which layers matter? Skip each one, and test the differences.

    python examples/02_sweep_and_statistics.py [MODEL]      a hub id, a directory, or the demo model by default

The command `layerwise sweep MODEL --families leave_one_out` does the same and stores every row.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import layerwise
from layerwise import families
from layerwise.runner.reporter import Silent


def main(model: str = "demo") -> None:
    """Print the loss increase from skipping each layer, with its interval."""
    stack = layerwise.load(model)
    corpus = layerwise.demo_corpus(texts=12, characters=300, questions=8)

    # The losses are in nats. Steps that plans share run once. An effect is the difference from the original model on
    # the same documents, and p-values are corrected for the number of plans.
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        result = layerwise.sweep(
            stack, corpus, tokens=4000, families=("leave_one_out",), similarity=False, run=run, reporter=Silent()
        )
        table = result.table("effect").query("metric == 'delta_nll' and task == 'all'").set_index("plan")

    print("skipped        nats/token   95 % interval      p, corrected")
    for layer, member in enumerate(families.leave_one_out(stack.depth)):
        effect = table.loc[str(member.plan)]
        verdict = "" if effect.p_adjusted < 0.05 else f"   inconclusive (detectable: {effect.mde:.3f})"
        interval = f"[{effect.low:+.3f}, {effect.high:+.3f}]"
        print(f"layer {layer:<4} {effect.value:+15.3f}   {interval:18} {effect.p_adjusted:.4f}{verdict}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
