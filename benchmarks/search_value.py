"""Compare the plan chosen by a search with one-shot and random sets on fresh text of two corpora.

    python benchmarks/search_value.py --second FOLDER                  # the demo model at 9 and at 6 of 12 layers
    python benchmarks/search_value.py --text FOLDER --max-length 128   # search on another corpus

Prints a table for each: the difference of every condition from the selected plan, in nats per token, with its interval
and its p-value, corrected over the conditions (Holm).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import layerwise
from layerwise.runner.terminal import Terminal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--second", type=Path, default=None)
    parser.add_argument("--text", type=Path, default=None)
    parser.add_argument("--max-length", type=int, default=None)
    parser.add_argument("--layers", default="9,6")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--runs", type=Path, default=Path("/tmp/search_value"))
    options = parser.parse_args()
    stack = layerwise.load("demo")
    own = options.text is None
    corpus = layerwise.demo_corpus(texts=128, questions=20) if own else layerwise.read_corpus(options.text)
    for layers in options.layers.split(","):
        began = time.process_time()
        with Terminal() as terminal:
            result = layerwise.search(
                stack,
                corpus,
                layerwise.Budget(layers=int(layers)),
                second_text=options.second,
                tokens=options.tokens,
                max_length=options.max_length,
                run=options.runs / layers,
                reporter=terminal,
            )
        print(f"{layers} layers: {result.best}, {time.process_time() - began:.0f} s of processor time")
        print(result.confirmed.drop(columns=["measure", "mde"]).to_string(float_format=lambda value: f"{value:.4f}"))


if __name__ == "__main__":
    main()
