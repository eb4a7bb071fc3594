"""Fused projections: found by what linear layers read, equal to the layers by themselves, and gone afterwards."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conftest import tiny_llama
from contracts.fused import UNITS
from layerwise.errors import ModelError, UnsupportedModel
from layerwise.stack import Stack, load
from layerwise.stack.executors.fused.layout import joint, laid_out, side_by_side
from layerwise.stack.executors.fused.projections import TOKENS, FusedProjections, projecting, sibling_projections
from layerwise.stack.rounding import EPS, gap
from stack.executors.fused.test_layout import held
from stack.makers import IDS, MAKERS, stack_of

LLAMA = (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj"))


class Block(nn.Module):
    """Linear layers of which `one`, `two` and `four` read the input; `two` may find it changed, `four` has no bias."""

    def __init__(self, changes: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.three = nn.Linear(8, 4), nn.Linear(8, 12), nn.Linear(12, 8)
        self.four = nn.Linear(8, 8, bias=False)
        self.changes = changes

    def forward(self, state: Tensor) -> Tensor:
        first = self.one(state)
        if self.changes:
            state += 1
        return self.three(self.two(state)) + self.four(state) + F.pad(first, (0, 4))


def found(block: nn.Module) -> object:
    with torch.no_grad():
        (siblings,) = sibling_projections([block], lambda: block(torch.randn(2, 3, 8)))
    return siblings


def test_siblings_are_the_layers_that_read_one_tensor() -> None:
    assert found(Block()) == (("one", "two"),)


def test_a_tensor_that_changes_between_two_layers_makes_no_siblings() -> None:
    assert found(Block(changes=True)) == ()


def test_a_layer_that_is_called_twice_is_nobody_s_sibling() -> None:
    block = Block()
    with torch.no_grad():
        (siblings,) = sibling_projections([block], lambda: (block(torch.ones(1, 8)), block(torch.zeros(1, 8))))
    assert siblings == ()


def test_the_siblings_of_a_llama() -> None:
    stack = stack_of("llama")
    with stack.fused_projections():
        pass
    assert stack.fusion.siblings is not None
    assert set(stack.fusion.siblings) == {LLAMA}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_model_computes_what_it_did(kind: str) -> None:
    stack, inputs = stack_of(kind), MAKERS[kind][1]
    with torch.inference_mode():
        expected = stack.model(**inputs)[0]
        with stack.fused_projections():
            assert gap(stack.model(**inputs)[0], expected) <= UNITS * EPS
        assert torch.equal(stack.model(**inputs)[0], expected)


def test_the_product_is_made_once_for_all_and_anew_for_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    block = Block()
    calls: list[int] = []
    plain = F.linear

    def counting(state: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        calls.append(weight.shape[0])
        return plain(state, weight, bias)

    state = torch.randn(2, 3, 8)
    with torch.no_grad():
        expected = block(state)
        with laid_out([block], (("one", "two"),)):
            weights = joint([block])
            assert weights is not None
            with projecting(block, weights, (("one", "two"),)):
                monkeypatch.setattr(F, "linear", counting)
                for number in range(2):  # the second time the same tensor holds other numbers
                    assert gap(block(state), expected if number == 0 else block_alone(block, state)) <= UNITS * EPS
                    state.mul_(2)
    assert calls.count(16) == 2


def block_alone(block: Block, state: Tensor) -> Tensor:
    """What the block returns by its own layers."""
    return copy_of(block)(state)


def copy_of(block: Block) -> Block:
    made = Block()
    made.load_state_dict(block.state_dict())
    return made


def test_a_wrong_column_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deliberate wrong answer: the layers get each other's columns."""
    right = FusedProjections.product

    def exchanged(self: FusedProjections, number: int, state: Tensor) -> Tensor:
        return right(self, {1: 2, 2: 1}.get(number, number) if len(self._sizes) == 3 else number, state)

    monkeypatch.setattr(FusedProjections, "product", exchanged)
    stack = stack_of("llama")
    with torch.inference_mode():
        expected = stack.model(input_ids=IDS).logits
        with stack.fused_projections():
            assert gap(stack.model(input_ids=IDS).logits, expected) > UNITS * EPS


def test_the_weights_stand_side_by_side_and_nothing_is_held_twice() -> None:
    stack = load(tiny_llama().eval())
    before, size = dict(stack.model.named_parameters()), held(stack.model)
    values = {name: each.detach().clone() for name, each in before.items()}
    with stack.fused_projections():
        inside = dict(stack.model.named_parameters())
        assert all(inside[name] is before[name] and torch.equal(inside[name], values[name]) for name in before)
        assert held(stack.model) <= 1.02 * size
        weights = joint([stack.block(1)])
        assert weights is not None
        together, _ = side_by_side(weights, LLAMA[1])
        assert together.data_ptr() == stack.block(1).mlp.gate_proj.weight.data_ptr()
        assert torch.equal(together[0], torch.cat([values[f"model.layers.1.{path}.weight"] for path in LLAMA[1]]))
    assert held(stack.model) == size
    assert not any("forward" in vars(each) for each in stack.model.modules())


def test_long_passes_gradients_and_replaced_weights_go_by_the_layers_own_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stack = load(tiny_llama().eval())
    used: list[int] = []
    right = FusedProjections.product
    monkeypatch.setattr(FusedProjections, "product", lambda self, n, x: used.append(n) or right(self, n, x))
    with stack.fused_projections():
        with torch.no_grad():
            stack.model(input_ids=torch.ones(1, TOKENS + 1, dtype=torch.long))
        assert used == []
        stack.model(input_ids=IDS).logits.sum().backward()
        assert used == []
        assert all(each.grad is not None for each in stack.model.parameters())
        with torch.no_grad():
            stack.model(input_ids=IDS)
            assert used
            used.clear()
            stack.model.double()(input_ids=IDS)
            assert used == []


def test_a_plan_fuses_the_layers_outside_its_groups_too() -> None:
    stack = stack_of("llama")
    with stack.under("0 (1|2) 4", fused=True):
        fused = [layer for layer in range(stack.depth) if "forward" in vars(stack.block(layer).mlp.up_proj)]
    assert fused == [0, 1, 2, 4]


def test_a_model_of_inference_tensors_is_left_as_it_is_and_its_groups_are_refused_in_words() -> None:
    with torch.inference_mode():
        stack = load(tiny_llama().eval())
        expected = stack.model(input_ids=IDS).logits
        with stack.fused_projections():
            assert torch.equal(stack.model(input_ids=IDS).logits, expected)
        with pytest.raises(UnsupportedModel, match=r"load the model outside of torch\.inference_mode"):
            stack.under("0 (1|2) 3-5", fused=True).__enter__()


def test_a_copy_inside_is_refused_in_words() -> None:
    stack = stack_of("llama")
    with stack.fused_projections(), pytest.raises(ModelError, match="leave that `with` block first"):
        copy.deepcopy(stack.model)


def test_a_plan_in_place_refuses_it() -> None:
    stack = stack_of("llama")
    with stack.under("0 2"), pytest.raises(ModelError, match="fuse its projections"), stack.fused_projections():
        pass


def test_the_head_stands_transposed_unless_it_is_the_embedding() -> None:
    stack: Stack = load(tiny_llama().eval())
    tied = stack.model.lm_head.weight is stack.model.get_input_embeddings().weight
    with stack.fused_projections():
        assert stack.model.lm_head.weight.is_contiguous() == tied
    assert stack.model.lm_head.weight.is_contiguous()
