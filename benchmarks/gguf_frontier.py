"""Compare GGUF files in llama.cpp with the first: nats per token of a text, and tokens per second.

    python benchmarks/gguf_frontier.py MODEL.gguf pruned.gguf healed.gguf --text FILE [--tokens 10000]

The text is read in windows of 256 tokens by llama.cpp on each file; differences are paired by window,
with a bootstrap interval. Tokens per second are measured in a random order in each round.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from layerwise.measure.stats.statistics import paired_bootstrap
from llama_cpp import LlamaCpp

WINDOW = 256


def windows_of(model: Path, text: Path, tokens: int) -> list[list[int]]:
    """Return full windows spread evenly over a text."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name)
    ids: list[int] = tokenizer(text.read_text(encoding="utf-8"))["input_ids"]
    windows = [ids[at : at + WINDOW] for at in range(0, len(ids) - WINDOW, WINDOW)]
    wanted = max(1, round(tokens / (WINDOW - 1)))
    return windows[:: max(1, len(windows) // wanted)][:wanted]


def timed(model: LlamaCpp, prompt: list[int]) -> tuple[float, float]:
    """Return tokens per second of reading the prompt and of generating 32 tokens."""
    model.forget()
    begin = time.perf_counter()
    model.decode(prompt)
    read = time.perf_counter()
    for token in prompt[:32]:
        model.decode([token])
    return len(prompt) / (read - begin), 32 / (time.perf_counter() - read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    windows = windows_of(options.files[0].resolve(), options.text, options.tokens)
    sums = {}
    for file in options.files:
        with LlamaCpp(file) as model:
            sums[file] = np.array([model.losses(window).sum() for window in windows])
    lengths = np.full(len(windows), WINDOW - 1.0)
    models = {file: LlamaCpp(file) for file in options.files}
    speeds: dict[Path, list[tuple[float, float]]] = {file: [] for file in options.files}
    for _ in range(options.rounds + 1):
        for file in random.sample(options.files, len(options.files)):
            speeds[file].append(timed(models[file], windows[0]))
    first = options.files[0]
    print(f"{lengths.sum():,.0f} tokens in {len(windows)} windows, {options.rounds} rounds")
    for file in options.files:
        above = paired_bootstrap((sums[file] - sums[first])[None], lengths, seed=0)
        pairs = list(zip(speeds[file][1:], speeds[first][1:], strict=True))
        name, loss = f"{file.name}: {models[file].depth} layers", sums[file].sum() / lengths.sum()
        print(
            f"{name}, {file.stat().st_size / 1e6:.1f} MB; {loss:.4f} nats per token, {above.value[0]:+.4f} "
            f"[{above.low[0]:+.4f}, {above.high[0]:+.4f}]"
        )
        for kind, what in enumerate(("reading", "generating")):
            pace = statistics.median(own[kind] for own, _ in pairs)
            ratio = statistics.median(own[kind] / other[kind] for own, other in pairs)
            print(f"    {what} {pace:.0f} tokens per second, {ratio:.3f} x")


if __name__ == "__main__":
    main()
