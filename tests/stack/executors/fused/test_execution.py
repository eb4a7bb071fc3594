"""Plans whose groups run as one: what the reference computes, with a cache and without, and when they run in turn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from conftest import tiny_llama
from contracts.fused import UNITS, counted
from layerwise.stack import Stack, load
from layerwise.stack.executors.fused.execution import TOKENS
from layerwise.stack.rounding import EPS, gap
from stack.makers import IDS, stack_of

PLAN = "0 (1|2|3) 4 (3|5)"


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"cache_implementation": "static", "disable_compile": True}])
def test_other_ways_to_decode(options: dict[str, Any]) -> None:
    stack = stack_of("llama")
    call = {"input_ids": IDS, "max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with stack.under(PLAN):
        expected = stack.model.generate(**call, **options)
    with stack.under(PLAN, fused=True), counted() as together:
        assert torch.equal(stack.model.generate(**call, **options), expected)
    assert together


def _decoded(stack: Stack, cache: DynamicCache, change: Callable[[DynamicCache], None]) -> list[Tensor]:
    """The logits of two tokens behind a prompt, the cache changed before the second."""
    first = stack.model(input_ids=IDS[:, :6], past_key_values=cache).logits
    second = stack.model(input_ids=IDS[:, 6:7], past_key_values=cache).logits
    change(cache)
    return [first, second, stack.model(input_ids=IDS[:, 7:8], past_key_values=cache).logits]


CHANGES: dict[str, Callable[[DynamicCache], None]] = {
    "as it is": lambda cache: None,
    "rows exchanged": lambda cache: cache.reorder_cache(torch.tensor([1, 0])),
    "cropped": lambda cache: cache.crop(-1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_cache_may_be_changed_between_tokens(change: str) -> None:
    stack = stack_of("llama")
    caches = []
    outputs = []
    for fused in (False, True):
        with torch.inference_mode(), stack.under(PLAN, fused=fused):
            caches.append(DynamicCache(config=stack.model.config))
            outputs.append(_decoded(stack, caches[-1], CHANGES[change]))
    assert all(gap(one, other) <= UNITS * EPS for one, other in zip(outputs[1], outputs[0], strict=True))
    for one, other in zip(caches[1].layers, caches[0].layers, strict=False):
        assert gap(one.keys, other.keys) <= UNITS * EPS


def test_a_long_pass_runs_in_turn_and_a_token_behind_it_at_once() -> None:
    stack = stack_of("llama")
    ids = torch.randint(3, 97, (1, TOKENS + 1), generator=torch.Generator().manual_seed(5))
    outputs = []
    for fused in (False, True):
        with torch.inference_mode(), stack.under(PLAN, fused=fused), counted() as together:
            cache = stack.model(input_ids=ids, use_cache=True).past_key_values
            assert not together
            outputs.append(stack.model(input_ids=IDS[:1, :1], past_key_values=cache).logits)
        assert len(together) == 2 * fused
    assert gap(*reversed(outputs)) <= UNITS * EPS


def _hooked(stack: Stack) -> Any:
    return stack.block(2).mlp.register_forward_hook(lambda module, args, output: output * 2).remove


def _prehooked(stack: Stack) -> Any:
    return stack.block(2).register_forward_pre_hook(lambda module, args: (args[0] * 2, *args[1:])).remove


def _rewritten(stack: Stack) -> Any:
    weight = stack.block(2).mlp.up_proj.weight
    before, weight.data = weight.data, weight.data * 2
    return lambda: setattr(weight, "data", before)


@pytest.mark.parametrize("change", [_hooked, _prehooked, _rewritten])
def test_a_change_inside_a_member_counts(change: Callable[[Stack], Any]) -> None:
    stack = stack_of("llama")
    outputs = []
    for fused in (False, True):
        with torch.inference_mode(), stack.under(PLAN, fused=fused), ExitStack() as undo:
            undo.callback(change(stack))
            outputs.append(stack.model(input_ids=IDS).logits)
    assert gap(*outputs) <= UNITS * EPS


def test_an_inner_hook_of_a_layer_of_no_group_changes_nothing_about_the_groups() -> None:
    stack = stack_of("llama")
    hook = stack.block(4).mlp.register_forward_hook(lambda *_: None)
    with hook, torch.inference_mode(), stack.under(PLAN, fused=True), counted() as together:
        stack.model(input_ids=IDS)
    assert len(together) == 2


def test_training_runs_in_turn_with_the_gradients_of_the_plan() -> None:
    gradients = []
    for fused in (False, True):
        stack = load(tiny_llama().eval())
        with stack.under(PLAN, fused=fused), counted() as together:
            stack.model(input_ids=IDS).logits.square().mean().backward()
        assert not together
        gradients.append([each.grad for each in stack.model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_recorded_states_are_those_of_the_plan() -> None:
    stack = stack_of("llama")
    recorded = []
    for fused in (False, True):
        with torch.inference_mode(), stack.under(PLAN, fused=fused):
            recorded.append(stack.model(input_ids=IDS, output_hidden_states=True).hidden_states)
            with counted() as together:
                stack.model(input_ids=IDS)
        assert len(together) == 2 * fused, "hooks that wait keep the groups from running as one"
    assert len(recorded[0]) == len(recorded[1])
    assert all(gap(one, other) <= UNITS * EPS for one, other in zip(*recorded, strict=True))


def test_recorded_attentions_are_those_of_the_plan() -> None:
    model = tiny_llama().eval()
    model.set_attn_implementation("eager")
    stack = load(model)
    recorded = []
    for fused in (False, True):
        with torch.inference_mode(), stack.under(PLAN, fused=fused):
            recorded.append(stack.model(input_ids=IDS, output_attentions=True).attentions)
    assert len(recorded[0]) == len(recorded[1]) == 7
    assert all(gap(one, other) <= UNITS * EPS for one, other in zip(*recorded, strict=True))


def test_layers_of_several_models_run_as_one() -> None:
    models = {"a": stack_of("llama"), "b": load(tiny_llama().eval())}
    with torch.no_grad():
        for parameter in models["b"].model.parameters():
            parameter.mul_(1.25)
    merged = Stack.with_sources(models)
    for plan in ("a:0 (a:1|b:1|b:2) 3", "(b:4|0):sum"):
        with torch.inference_mode():
            expected = merged.logits(plan, input_ids=IDS)
            with merged.under(plan, fused=True), counted() as together:
                inside = merged.model(input_ids=IDS).logits
        assert len(together) == 1
        assert gap(inside, expected) <= UNITS * EPS


def test_half_precision_is_proved_in_float32_and_near_the_plan_in_turn() -> None:
    stack = load(tiny_llama().eval().bfloat16())
    outputs = []
    for fused in (False, True):
        with torch.inference_mode(), stack.under(PLAN, fused=fused):
            outputs.append(stack.model(input_ids=IDS).logits.float())
    assert gap(outputs[1], outputs[0]) <= 8 * torch.finfo(torch.bfloat16).eps
