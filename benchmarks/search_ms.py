"""Compare predicted and measured milliseconds of five plans, interleaved.

python benchmarks/search_ms.py                     # the demo model, prefill and decode
python benchmarks/search_ms.py --model org/name --batch 4 --context 1024
"""

from __future__ import annotations

import argparse

import torch

import layerwise
from layerwise.measure.cost.pass_time import PHASES, Setting
from layerwise.plan import Plan
from layerwise.search.costs import PlanCosts, measure_milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=61)
    options = parser.parse_args()
    torch.set_num_threads(1)
    stack = layerwise.load(options.model)
    depth = stack.depth
    half, last = depth // 2, depth - 1
    texts = [
        f"0-{last}",
        f"0 {depth // 4 + 1}-{last}",
        f"0-{half - 1}",
        f"0-{half} {half}-{last}",
        f"0 ({1}|{2}):sum 3-{last - 2} {last}",
    ]
    plans = [Plan.parse(text) for text in texts]
    for phase in PHASES:
        setting = Setting(phase, options.batch, options.context)
        table, times = measure_milliseconds(stack, setting, plans, repeats=options.repeats)
        costs = PlanCosts.from_stack(stack, table)
        print(f"{setting}: a layer {table.pieces[0, None]:.3f} ms, the rest {table.rest:.3f} ms")
        for plan, whole in times.items():
            predicted = costs.compute(plan, "ms")
            print(
                f"  {plan!s:28} predicted {predicted:8.3f} ms, measured {whole:8.3f} ms, {whole / predicted - 1:+.1%}"
            )


if __name__ == "__main__":
    main()
