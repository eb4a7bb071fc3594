"""What the cheap proxies of all layers cost, in units of one forward and one backward pass of the same tokens.

    python benchmarks/proxies.py                    # the demo's shape, and 12 layers of width 384
    python benchmarks/proxies.py --shape smol       # 30 layers of width 576, a vocabulary of 49,152: minutes

Llamas with random weights. `survey` is Block Influence, angular distances, gate gradients of all layers and halves with
their statistics, and Taylor importance. The plain pass is the model's own, with the gradients of the blocks' weights
(which is less than training takes: the embeddings' and the head's gradients are left out on both sides). Both are timed
in turns, in both orders, and the ratio is the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from layerwise.data.batches import batches
from layerwise.data.text.tokens import Window
from layerwise.measure.gradients.proxies import logit_lens, plain_pass, split, survey
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.stack import Stack, load

# Layers, width, width of the MLP, heads, vocabulary, length of a window.
SHAPES = {
    "demo": (12, 128, 344, 4, 1024, 128),
    "middle": (12, 384, 1024, 6, 8192, 256),
    "smol": (30, 576, 1536, 9, 49152, 512),
}


def model_of(shape: str) -> LlamaForCausalLM:
    """A Llama of that shape, with random weights."""
    layers, width, inner, heads, vocabulary, _ = SHAPES[shape]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


def random_reading(shape: str, tokens: int) -> EvalData:
    """Random tokens in windows of one length, every one but a window's first scored."""
    vocabulary, length = SHAPES[shape][-2:]
    ids = torch.randint(0, vocabulary, (max(1, tokens // length), length), generator=torch.Generator().manual_seed(1))
    windows = [Window(f"document-{row}", "random", 0, tuple(ids[row].tolist()), 1, length) for row in range(len(ids))]
    return EvalData("random", "random", length, "next_token", batches(windows, 4096, 0))


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(stack: Stack, reading: EvalData, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of the plain pass and of the survey, in turns, after one round of each that is not counted."""
    sides = (partial(plain_pass, stack, reading), partial(survey, stack, reading, split(stack, reading)))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 1):
        for side in (0, 1) if turn % 2 else (1, 0):
            took = seconds(sides[side])
            if turn:
                times[side].append(took)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=[*SHAPES, "both"], default="both", help="both: demo and middle")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--lens", action="store_true", help="time the logit lens too, once")
    options = parser.parse_args()
    for shape in ("demo", "middle") if options.shape == "both" else (options.shape,):
        stack, reading = load(model_of(shape)), random_reading(shape, options.tokens)
        plain, ours = compare(stack, reading, options.rounds)
        ratios = [b / a for a, b in zip(plain, ours, strict=True)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{shape}: {stack.depth} layers, {reading.tokens:,} tokens, {options.rounds} rounds")
        print(
            f"  one forward and one backward: {statistics.median(plain):.2f} s; survey: {statistics.median(ours):.2f} s"
        )
        print(f"  ratio: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}; ", end="")
        print(f"peak memory of the process {peak:,.0f} MB")
        if options.lens:
            print(f"  logit lens: {seconds(partial(logit_lens, stack, reading)) / statistics.median(plain):.2f} passes")


if __name__ == "__main__":
    main()
