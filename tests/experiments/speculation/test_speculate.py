"""`layerwise speculate`: what it expects, what it counts, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from cli.command import layerwise
from layerwise.errors import OptionError, PlanError, UnsupportedModel
from layerwise.experiments.speculation import run
from layerwise.experiments.speculation.config import SpeculativeDecoding
from layerwise.experiments.speculation.twin import twin
from layerwise.plan import Plan
from layerwise.stack import Stack, load

SHORT = ("--prompts", "2", "--new-tokens", "6", "--context", "12", "--agreement-tokens", "400")


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load("demo")


def test_an_assistant_has_the_tensors_of_the_model_and_computes_the_plan(stack: Stack) -> None:
    plan = Plan.parse("0-3 6-11")
    assistant = twin(stack, plan)
    pointers = {tensor.data_ptr() for tensor in (*stack.model.parameters(), *stack.model.buffers())}
    assert all(tensor.data_ptr() in pointers for tensor in (*assistant.parameters(), *assistant.buffers()))
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        torch.testing.assert_close(assistant(ids).logits, stack.logits(plan, input_ids=ids), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("plan", ["0-3 3-11", "0 (1|2) 3-11"])
def test_what_no_model_of_its_own_can_hold_has_no_assistant(stack: Stack, plan: str) -> None:
    with pytest.raises(UnsupportedModel, match="row of distinct layers"):
        twin(stack, Plan.parse(plan))


@pytest.mark.slow
def test_a_draft_that_is_given() -> None:
    ended = layerwise("speculate", "demo", "--draft", "0 1 3-11", *SHORT)
    assert ended.code == 0
    assert "draft 0 1 3-11: 11 of 12 layer passes" in ended.out
    assert "equal to generate: 2 of 2 texts" in ended.out
    assert "x assistant" in ended.out


@pytest.mark.slow
def test_a_text_that_differs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_verdict", lambda *_: "other")
    ended = layerwise("speculate", "demo", "--draft", "0 1 3-11", *SHORT)
    assert ended.code == 1
    assert "equal to generate: 0 of 2 texts" in ended.out


def test_a_draft_or_a_search_is_needed() -> None:
    with pytest.raises(OptionError, match="--draft PLAN"):
        SpeculativeDecoding(model="demo")
    with pytest.raises(OptionError, match="say which layers draft"):
        SpeculativeDecoding(model="demo", draft="0-3", search=True)
    with pytest.raises(PlanError):
        SpeculativeDecoding(model="demo", draft="0-")


def test_a_verdict_tells_a_tie_from_another_text(stack: Stack) -> None:
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        order = stack.model(ids).logits[0, -1].argsort(descending=True)
    first, second = (torch.cat([ids, token.view(1, 1)], dim=-1) for token in order[:2])
    assert run._verdict(stack, ids, first, first) == "equal"
    assert run._verdict(stack, ids, first, second) == "other"
