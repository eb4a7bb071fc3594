"""A first plan: load a model, run it with its layers in another order, and read what it writes.

python examples/01_first_plan.py [MODEL]      a hub id, a folder, or the demo model when left out
"""

from __future__ import annotations

import sys

import torch

import layerwise
from layerwise import Plan, Stack, edits

PROMPT = "The layers of a "


def continuation(stack: Stack) -> str:
    """What the model writes after the prompt, greedily, as it is now."""
    ids = stack.tokenizer(PROMPT, return_tensors="pt")["input_ids"].to(stack.device)
    written = stack.model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False
    )
    return repr(stack.tokenizer.decode(written[0, ids.shape[1] :]))


def main(model: str = "demo") -> None:
    """Print one continuation for each of four plans."""
    stack = layerwise.load(model)
    whole = Plan.identity(stack.depth)
    middle = stack.depth // 2
    print(f"{stack.source.name} has {stack.depth} layers; its plan is {whole}\n")

    # A plan is a value, and so is every edit of it. Plan.parse reads the same text that a plan prints.
    plans = {
        "as trained": whole,
        "without its middle layer": edits.skip(whole, middle),
        "two layers exchanged": edits.swap(whole, middle - 1, middle),
        "the first half only": Plan.parse(f"0-{middle - 1}"),
    }
    for words, plan in plans.items():
        # Inside `with`, the model itself is the re-planned one: generate, pipelines and trainers just work.
        with stack.under(plan):
            print(f"{words} ({plan}, {plan.cost().evaluations} layer evaluations)\n    {continuation(stack)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
