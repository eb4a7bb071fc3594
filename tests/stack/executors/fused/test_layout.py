"""The storage of fused groups: nothing twice, nothing lost, the same parameters, and their own data afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

from conftest import tiny_llama
from layerwise.errors import UnsupportedModel
from layerwise.stack import Stack, load
from layerwise.stack.executors.fused.layout import joint, laid_out
from layerwise.stack.inputs import example_inputs


def made() -> Stack:
    return load(tiny_llama().eval())


def held(model: nn.Module) -> int:
    """The bytes of all storages of the parameters, each counted once."""
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in model.parameters()}
    return sum(storages.values())


def test_the_parameters_stay_what_they_are_and_nothing_is_held_twice() -> None:
    stack = made()
    before = dict(stack.model.named_parameters())
    values = {name: each.detach().clone() for name, each in before.items()}
    size = held(stack.model)
    for _ in range(2):
        with stack.under("0 (1|2|3|4) 5", fused=True):
            inside = dict(stack.model.named_parameters())
            assert list(inside) == list(before)
            assert all(inside[name] is before[name] for name in before)
            assert all(torch.equal(inside[name], values[name]) for name in before)
            assert held(stack.model) <= 1.02 * size
            assert len({stack.block(layer).mlp.up_proj.weight.untyped_storage().data_ptr() for layer in (1, 4)}) == 1
        assert held(stack.model) == size
        assert all(each.is_contiguous() for each in stack.model.parameters())


def test_the_joint_weights_are_the_members_own() -> None:
    stack = made()
    blocks = [stack.block(layer) for layer in (1, 3)]
    assert joint(blocks) is None
    with laid_out([stack.block(layer) for layer in (1, 2, 3)]):
        together = joint(blocks)
        assert together is not None
        for name, weights in together.items():
            for row, block in zip(weights, blocks, strict=True):
                assert row.data_ptr() == block.get_parameter(name).data_ptr()
                assert torch.equal(row, block.get_parameter(name))
    assert joint(blocks) is None


def test_the_model_computes_to_the_bit_what_it_did_before() -> None:
    stack = made()
    inputs = example_inputs(stack.model)
    assert inputs is not None
    with torch.inference_mode():
        before = stack.model(**inputs).logits
        with stack.under("0 (1|2) 3", fused=True):
            stack.model(**inputs)
        assert torch.equal(stack.model(**inputs).logits, before)


@pytest.mark.parametrize("plan", ["0 (1|2) 3", "(0|1|2|3) (0|1|3)"])
def test_an_exception_or_a_refusal_leaves_nothing_behind(plan: str) -> None:
    stack = made()
    size = held(stack.model)
    with pytest.raises((UnsupportedModel, KeyError)), stack.under(plan, fused=True):
        raise KeyError
    assert held(stack.model) == size
    assert stack.running is None


def test_it_saves_inside_as_outside(tmp_path: Path) -> None:
    stack = made()
    expected = {name: each.clone() for name, each in stack.model.state_dict().items()}
    with stack.under("0 (1|2|3) 4", fused=True):
        stack.model.save_pretrained(tmp_path)
    stored = LlamaForCausalLM.from_pretrained(tmp_path).state_dict()
    assert stored.keys() == expected.keys()
    assert all(torch.equal(stored[name], expected[name]) for name in expected)


def test_a_model_that_is_entered_in_inference_mode_can_still_be_trained() -> None:
    stack = made()
    with torch.inference_mode(), stack.under("0 (1|2) 3", fused=True):
        pass
    inputs = example_inputs(stack.model)
    assert inputs is not None
    stack.model(**inputs).logits.sum().backward()
    assert all(each.grad is not None for each in stack.model.parameters() if each.requires_grad)


def test_a_parameter_that_was_given_other_data_keeps_them() -> None:
    stack = made()
    with stack.under("0 (1|2) 3", fused=True):
        stack.model.double()
    assert {each.dtype for each in stack.model.parameters()} == {torch.float64}
