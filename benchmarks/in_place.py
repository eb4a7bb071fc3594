"""Compare the identity plan in place with the original model: forward passes and cached decoding.

    python benchmarks/in_place.py

A 12-layer Llama of width 576 with random weights. Each round times both, in both orders, and the
ratio is the median over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from layerwise.plan import Plan
from layerwise.stack import load


def seconds(work: Callable[[], object]) -> float:
    """Time `work`."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=12,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=1024,
    )
    model = LlamaForCausalLM(config).eval()
    stack = load(model)
    ids = torch.randint(3, 8192, (2, 128))
    decode = {"max_new_tokens": 16, "min_new_tokens": 16, "do_sample": False, "pad_token_id": 0}
    work: dict[str, Callable[[], object]] = {
        "forward, 2 x 128 tokens": lambda: model(ids, use_cache=False),
        "16 tokens of cached decoding": lambda: model.generate(ids[:, :32], **decode),
    }
    identity = Plan.identity(stack.depth)
    storage = {parameter.data_ptr() for parameter in model.parameters()}
    with stack.under(identity):
        same = {parameter.data_ptr() for parameter in model.parameters()} == storage
    print(f"storage pointers in place: {'the same' if same else 'DIFFERENT'} ({len(storage)} tensors)")

    def in_place(task: Callable[[], object]) -> float:
        with stack.under(identity):
            return seconds(task)

    with torch.inference_mode():
        for name, task in work.items():
            task()
            plain, inside = [], []
            for turn in range(options.rounds):
                sides = [(plain, seconds), (inside, in_place)]
                for times, measure in sides if turn % 2 else reversed(sides):
                    times.append(measure(task))
            ratio = statistics.median(inside) / statistics.median(plain)
            paired = statistics.median(b / a for a, b in zip(plain, inside, strict=True))
            print(f"{name}: plain {statistics.median(plain) * 1e3:.2f} ms,", end=" ")
            print(f"in place {statistics.median(inside) * 1e3:.2f} ms,", end=" ")
            print(f"ratio of medians {ratio:.4f}, median of paired ratios {paired:.4f}")
        entering = statistics.median(seconds(lambda: _enter(stack, identity)) for _ in range(options.rounds))
    print(f"entering and leaving the plan: {entering * 1e3:.2f} ms, once per `with`")


def _enter(stack: object, plan: Plan) -> None:
    with stack.under(plan):  # type: ignore[attr-defined]
        pass


if __name__ == "__main__":
    main()
