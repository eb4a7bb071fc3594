"""A first plan: load a model and generate text with its layers in other orders.

python examples/01_first_plan.py [MODEL [PROMPT]]      a hub id, a directory, or the demo model by default
"""

from __future__ import annotations

import sys

import torch

import layerwise
from layerwise import Plan, Stack, edits

BACKWARDS = "reverse k d a z ="  # one of the tasks that the demo model knows: write letters backwards


def answer(stack: Stack, prompt: str) -> str:
    """Generate greedily after the prompt and return one line."""
    ids = stack.tokenizer(prompt, return_tensors="pt")["input_ids"].to(stack.device)
    written = stack.model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=10, do_sample=False
    )
    return stack.tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True).strip().partition("\n")[0]


def main(model: str = "demo", prompt: str = "") -> None:
    """Print one answer for each of five plans."""
    prompt = prompt or (BACKWARDS if model == "demo" else "The layers of a transformer")
    stack = layerwise.load(model)
    whole = Plan.identity(stack.depth)
    middle = stack.depth // 2

    # A plan is a value, and so is every edit of it. Plan.parse reads the same text that a plan prints.
    plans = {
        "original order": whole,
        "two layers swapped": edits.swap(whole, middle - 1, middle),
        "one layer skipped": edits.skip(whole, middle),
        "three in parallel": edits.parallel(whole, middle - 1, min(middle + 2, stack.depth)),
        "the first half only": Plan.parse(f"0-{middle - 1}"),
    }
    print(f"{stack.source.name}, prompt: {prompt}")
    for words, plan in plans.items():
        # Inside `with`, the model itself runs the plan, also in generate, pipelines and trainers.
        with stack.under(plan):
            print(f"  {words:22}{plan!s:22}{answer(stack, prompt)}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
