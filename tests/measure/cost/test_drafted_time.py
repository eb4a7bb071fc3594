"""What drafts take beside plain generation: both ways in turns, on a prompt of their own each round."""

from __future__ import annotations

import pytest
import torch

from conftest import tiny_llama
from layerwise.measure.cost import drafted_time
from layerwise.measure.cost.drafted_time import REPEATS, generation_ratio
from layerwise.stack import load
from layerwise.stack.speculation import Speculation, speculative


def test_ways_take_turns_and_the_fastest_of_each_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[bool, int]] = []

    def seconds(draft: Speculation, ids: torch.Tensor, new_tokens: int, way: dict[str, object]) -> float:
        taken.append(("custom_generate" in way, int(ids[0, 0])))
        return (6.0 if way else 3.0) + len(taken)

    monkeypatch.setattr(drafted_time, "_seconds", seconds)
    stack = load(tiny_llama())
    draft = speculative(stack, "0-2 5")
    prompts = [torch.tensor([[5, 6]]), torch.tensor([[7, 8]])]
    assert generation_ratio(draft, prompts, 4, 1) == pytest.approx((6 + 1) / (3 + 2))
    assert taken == [(True, 7), (False, 7)] * REPEATS
    taken.clear()
    generation_ratio(draft, prompts, 4, 2)
    assert taken == [(False, 5), (True, 5)] * REPEATS


def test_both_ways_write_the_tokens_that_were_asked_for() -> None:
    stack = load(tiny_llama())
    draft = speculative(stack, "0-2 5")
    assert generation_ratio(draft, [torch.tensor([[5, 6, 7]])], 6, 0) > 0
    assert draft.passes.tokens == 5  # the first comes with the prompt
