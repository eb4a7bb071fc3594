"""A draft sees the slots of its model's own cache, and what it wrote can be cut off again."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache, MistralConfig, StaticCache

from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack.speculation import shared_cache
from layerwise.stack.speculation.drafting import enters_blocks

CONFIG = MistralConfig(
    num_hidden_layers=4, hidden_size=8, num_attention_heads=2, num_key_value_heads=2, sliding_window=4,
    layer_types=["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
)  # fmt: skip


def filled(tokens: int) -> DynamicCache:
    cache = DynamicCache(config=CONFIG)
    for layer in range(4):
        state = torch.arange(tokens, dtype=torch.float32).view(1, 1, tokens, 1).expand(1, 2, tokens, 4)
        cache.update(state, state, layer)
    return cache


def test_a_layer_that_is_left_out_answers_as_one_of_its_kind_that_is_not() -> None:
    cache = filled(6)
    view = shared_cache.by_layer(cache, Plan.parse("2 3").steps())
    assert [cache.layers.index(slot) for slot in view.layers] == [2, 3, 2, 3]
    one = torch.zeros(1, 2, 1, 4)
    view.update(one, one, 2)
    assert view.get_seq_length() == cache.layers[2].get_seq_length() == 7
    assert cache.get_seq_length() == 6


def test_a_second_visit_writes_nothing_of_the_models() -> None:
    cache = filled(3)
    view = shared_cache.by_visit(cache, Plan.parse("1 0 1").steps())
    one = torch.ones(1, 2, 1, 4)
    for visit in range(3):
        view.update(one, one, visit)
    assert [slot.get_seq_length() for slot in view.layers] == [4, 4, 4]
    assert [slot.get_seq_length() for slot in cache.layers] == [4, 4, 3, 3]
    assert view.layers[0] is cache.layers[1]
    assert view.layers[2].keys is not cache.layers[1].keys


@pytest.mark.parametrize(
    ("plan", "owning"), [("0 1 0", {0, 1}), ("0.mlp 1 0.attn", {1, 2}), ("0.attn 0.mlp", {0}), ("0.mlp*2", {0})]
)
def test_the_visit_that_attends_owns_the_slot(plan: str, owning: set[int]) -> None:
    assert shared_cache.owning_visits(Plan.parse(plan).steps()) == owning


@pytest.mark.parametrize(("plan", "plain"), [("3 0 2", True), ("0 1 0", False), ("0.mlp 1", False), ("(0|1) 2", False)])
def test_blocks_are_entered_themselves_where_each_is_visited_once_and_whole(plan: str, plain: bool) -> None:
    assert enters_blocks(tuple(Plan.parse(plan).steps())) is plain


@pytest.mark.parametrize("before", [2, 3, 4, 7])
def test_what_is_cut_off_leaves_the_window_as_it_was(before: int) -> None:
    cache, expected = filled(before), filled(before)
    shared_cache.record_past(cache)
    more = torch.full((1, 2, 3, 4), 9.0)
    for layer in range(4):
        cache.update(more, more, layer)
    shared_cache.cut(cache, None, 3)
    for slot, other in zip(cache.layers, expected.layers, strict=True):
        assert torch.equal(slot.keys, other.keys)
        assert slot.get_seq_length() == before
    shared_cache.forget_past(cache)
    assert not any(getattr(slot, "record_past", False) for slot in cache.layers)


def test_a_cache_that_cannot_be_cut_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="StaticLayer"):
        shared_cache.refuse_unlike(StaticCache(CONFIG, 16), "m")
    with pytest.raises(UnsupportedModel, match="NoneType"):
        shared_cache.refuse_unlike(None, "m")
