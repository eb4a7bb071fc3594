"""What a router reads, which plans it may choose, and a model whose prompts run each under its own plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import tiny_llama
from layerwise.errors import ModelError, PlanError
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.search.routing.candidates import candidate_plans, keeps
from layerwise.search.routing.router import PlanRouter, RoutedStack, prompt_features
from layerwise.stack import Stack, load
from tiny_tokenizers import ALPHABET, character_tokenizer

DEPTH = 6
PLANS = tuple(map(Plan.parse, ("0 1 4 5", "0-5")))
PROMPTS = ["a short one", "b", "another, and a longer one", "a fourth", "b and c", "x", "the seventh of them"]


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(tiny_llama(DEPTH, vocabulary=3 + len(ALPHABET), seed=2), tokenizer=character_tokenizer())


@pytest.fixture(scope="module")
def routed(stack: Stack) -> RoutedStack:
    """A router that tells prompts apart by one feature of their last token."""
    weights = np.zeros((2 * 32, 2))
    weights[32, 1] = 1.0
    return RoutedStack(stack, PlanRouter(PLANS, 2, weights, np.zeros(2)))


@pytest.mark.parametrize("prefix", [0, 2, 5])
def test_features_are_the_mean_and_the_last_state_before_the_layer(stack: Stack, prefix: int) -> None:
    prompts = [[1, 5, 9, 30], [1, 7], [1, *range(10, 20)]]
    found = prompt_features(stack, prompts, prefix)
    with torch.inference_mode():
        for prompt, features in zip(prompts, found, strict=True):
            captured = stack.capture(input_ids=torch.tensor([prompt]))
            state = captured.state[0] if not prefix else stack.run(Plan.identity(prefix), captured)[0]
            expected = torch.cat([state.mean(dim=0), state[-1]]).double().numpy()
            np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-5)


def test_reading_features_leaves_no_hook_and_runs_no_further_layer(stack: Stack) -> None:
    ran: Counter[int] = Counter()
    handles = [
        stack.block(layer).register_forward_hook(lambda *_, layer=layer: ran.update([layer])) for layer in range(DEPTH)
    ]
    prompt_features(stack, [[1, 5], [1, 6, 7]], 2)
    for handle in handles:
        handle.remove()
    assert dict(ran) == {0: 1, 1: 1}
    assert not any(block._forward_pre_hooks for block in stack.blocks)


def test_plans_are_not_chosen_while_the_model_runs_one(stack: Stack, routed: RoutedStack) -> None:
    with stack.under("0-3"), pytest.raises(ModelError, match="choose plans outside"):
        routed.plan_of("a")


def test_every_prompt_is_answered_as_if_it_ran_alone_under_its_plan(stack: Stack, routed: RoutedStack) -> None:
    plans = routed.plans_of(PROMPTS)
    assert set(plans) == set(PLANS)  # both are chosen
    assert plans == [routed.plan_of(prompt) for prompt in PROMPTS]
    together = routed.generate(PROMPTS, batch_size=3, max_new_tokens=6, do_sample=False)
    for prompt, plan, text in zip(PROMPTS, plans, together, strict=True):
        tokenizer = stack.tokenizer
        ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(prompt, add_special_tokens=False)["input_ids"]]])
        with stack.under(plan), torch.inference_mode():
            alone = stack.model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
        assert text == tokenizer.decode(alone[0, ids.shape[1] :], skip_special_tokens=True)


def test_prompts_of_one_plan_run_together_in_batches_of_like_length(
    stack: Stack, routed: RoutedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[tuple[Plan | None, list[int]]] = []

    def generate(input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: object) -> torch.Tensor:
        batches.append((stack.running, attention_mask.sum(dim=1).tolist()))
        return input_ids

    monkeypatch.setattr(stack.model, "generate", generate)
    assert routed.generate(PROMPTS, batch_size=3) == [""] * len(PROMPTS)
    plans, lengths = routed.plans_of(PROMPTS), list(map(len, routed.encoded(PROMPTS)))
    expected = []
    for plan in dict.fromkeys(plans):
        own = sorted(length for length, each in zip(lengths, plans, strict=True) if each == plan)
        expected += [(plan, own[start : start + 3]) for start in range(0, len(own), 3)]
    assert batches == expected


def test_the_router_of_another_model_is_refused(stack: Stack, routed: RoutedStack) -> None:
    wide = replace(routed.router, weights=np.zeros((10, 2)))
    with pytest.raises(ModelError, match="run layerwise search route on this one"):
        RoutedStack(stack, wide)
    deep = replace(routed.router, plans=(PLANS[0], Plan.parse("0-7")))
    with pytest.raises(PlanError):
        RoutedStack(stack, deep)


# -- candidates -------------------------------------------------------------------------------------------------------


def planted(plans: Sequence[Plan]) -> dict[Plan, Numbers]:
    """Layer 3 is needed by the first half of the questions, layer 4 by the second, and no other by any."""
    made = {}
    for plan in plans:
        layers = plan.order()
        made[plan] = np.repeat([-1.0 * (3 not in layers), -1.0 * (4 not in layers)], 4)
    return made


def test_candidates_of_one_cost_are_good_at_different_prompts() -> None:
    plans = candidate_plans(planted, 6, 2, ("drop",), 2)
    assert all({3, 4} <= set(plan.order()) for plan in plans if len(plan.order()) == 5)
    two = [plan.order() for plan in plans if len(plan.order()) == 3]
    assert {(3 in layers, 4 in layers) for layers in two} == {(True, False), (False, True)}
    assert Plan.identity(6) in plans


def test_candidates_keep_the_prefix_and_stand_in_the_order_of_their_cost() -> None:
    own = Plan.parse("0 1 5 4")
    plans = candidate_plans(planted, 6, 2, ("drop", "repeat"), 2, [own])
    assert own in plans
    assert all(keeps(plan, 2) for plan in plans)
    costs = [plan.cost().evaluations for plan in plans]
    assert costs == sorted(costs)
    assert (costs[0], costs[-1]) == (3, 7)  # half of the layers, and a quarter more


def test_orders_are_candidates_where_prompts_need_them() -> None:
    """Half of the questions want the layer 4 before the layer 3: no plan in the trained order answers both halves."""

    def measured(plans: Sequence[Plan]) -> dict[Plan, Numbers]:
        pairs = {plan: [layer for layer in plan.order() if layer in (3, 4)] for plan in plans}
        return {plan: np.repeat([1.0 * (pair == [3, 4]), 1.0 * (pair == [4, 3])], 4) for plan, pair in pairs.items()}

    plans = candidate_plans(measured, 6, 2, ("drop", "reorder"), 2)
    assert {plan.order() for plan in plans if len(plan.order()) == 6} == {(0, 1, 2, 3, 4, 5), (0, 1, 2, 4, 3, 5)}
    assert any(plan.order()[-2:] == (4, 3) for plan in plans if len(plan.order()) == 4)
    assert all(keeps(plan, 2) for plan in plans)


def test_a_plan_without_finite_scores_is_no_candidate() -> None:
    def measured(plans: Sequence[Plan]) -> dict[Plan, Numbers]:
        return {plan: scores for plan, scores in planted(plans).items() if 5 in plan.order()}

    plans = candidate_plans(measured, 6, 2, ("drop",), 2)
    assert all(5 in plan.order() for plan in plans)
