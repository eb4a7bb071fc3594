"""Every function that takes a plan also takes its text."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from conftest import tiny_llama
from layerwise.errors import PlanError
from layerwise.plan import Plan, edits
from layerwise.plan.explain import explain
from layerwise.plan.lowering import cost
from layerwise.plan.wiring import matrix
from layerwise.stack import load, verify

STACK = load(tiny_llama())
IDS = torch.randint(3, 97, (2, 5), generator=torch.Generator().manual_seed(2))
TEXT = "0-3 5*2"


def under(plan: Any) -> torch.Tensor:
    with STACK.under(plan):
        found: torch.Tensor = STACK.model(IDS).logits
        return found


TAKERS: dict[str, Callable[[Any], Any]] = {
    "under": under,
    "check": STACK.check,
    "logits": lambda plan: STACK.logits(plan, input_ids=IDS),
    "run": lambda plan: STACK.run(plan, STACK.capture(input_ids=IDS)),
    "states": lambda plan: list(STACK.states(plan, STACK.capture(input_ids=IDS))),
    "verify": lambda plan: [(law.name, law.holds) for law in verify(STACK, plan)],
    "skip": lambda plan: edits.skip(plan, 1),
    "loop": lambda plan: edits.loop(plan, 1, 3, 2),
    "cost": cost,
    "matrix": matrix,
    "explain": explain,
}


@pytest.mark.parametrize("name", TAKERS)
def test_a_plan_and_its_text_are_the_same(name: str) -> None:
    with torch.inference_mode():
        text, value = TAKERS[name](TEXT), TAKERS[name](Plan.parse(TEXT))
    assert all(torch.equal(*pair) for pair in zip(text, value, strict=True)) if _tensors(text) else text == value


def _tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, list) and isinstance(value[0], torch.Tensor))


@pytest.mark.parametrize("bad", ["0-", "", "0-6", None, 3, [0, 1]])
def test_what_is_no_plan_is_refused_as_plans_are(bad: Any) -> None:
    with pytest.raises(PlanError, match=None if isinstance(bad, str) else "text"), STACK.under(bad):
        pass
