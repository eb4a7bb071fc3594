"""Weights of single layers: replaced for one call, moved to the disk and back; twins drawn by seed."""

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

from layerwise.errors import UnsupportedModel
from layerwise.stack import load, weight_hash
from layerwise.stack import weights as module
from layerwise.stack.weights import apply_with, layer_weights, random_twin, weights_on_disk
from stack.test_stack import Mixer


def test_a_layer_with_the_weights_of_another_is_that_layer(llama: LlamaForCausalLM, ids: torch.Tensor) -> None:
    stack = load(llama)
    with torch.inference_mode():
        captured = stack.capture(input_ids=ids)
        expected = stack.apply(4, captured.state, captured)
        found = apply_with(stack, 1, layer_weights(stack, 4), captured.state, captured)
        own = apply_with(stack, 1, {}, captured.state, captured)
        same = stack.apply(1, captured.state, captured)
    assert torch.equal(found, expected)
    assert torch.equal(own, same)


def test_layer_weights_are_not_copied(llama: LlamaForCausalLM) -> None:
    stack = load(llama)
    own = llama.model.layers[2].self_attn.q_proj.weight
    assert layer_weights(stack, 2)["self_attn.q_proj.weight"].data_ptr() == own.data_ptr()


def test_weights_on_the_disk_come_back_to_the_bit_also_after_an_exception(llama: LlamaForCausalLM) -> None:
    stack, before = load(llama), weight_hash(llama)
    turned = llama.model.layers[1].mlp.up_proj.weight
    turned.data = turned.data.t().contiguous().t()
    with suppress(RuntimeError), weights_on_disk(stack):
        assert sum(weight.untyped_storage().size() for weight in llama.parameters()) == 0
        raise RuntimeError
    assert weight_hash(llama) == before
    assert turned.stride() == (1, len(turned))


def test_without_room_on_the_disk_the_weights_stay_and_nothing_is_left_there(
    llama: LlamaForCausalLM, ids: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = module.save_file

    def nearly_full(tensors: dict[str, torch.Tensor], file: Path) -> None:
        written(tensors, file)
        if len(list(file.parent.iterdir())) > 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_file", nearly_full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with torch.inference_mode():
        expected = llama(input_ids=ids).logits
        with weights_on_disk(load(llama)):
            assert torch.equal(llama(input_ids=ids).logits, expected)
            assert not [each for each in tmp_path.rglob("*") if each.is_file()]
        assert torch.equal(llama(input_ids=ids).logits, expected)


def test_a_twin_is_another_draw_of_the_same_model(llama: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = load(llama)
    state = torch.random.get_rng_state()
    seeded: list[int] = []
    for accelerator in (torch.cuda, torch.xpu, torch.mps):
        monkeypatch.setattr(accelerator, "manual_seed_all", seeded.append, raising=False)
        monkeypatch.setattr(accelerator, "manual_seed", seeded.append)
    first, again, other = random_twin(stack, 3), random_twin(stack, 3), random_twin(stack, 4)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert seeded == []
    assert weight_hash(first.model) == weight_hash(again.model)
    assert len({weight_hash(each.model) for each in (stack.model, first.model, other.model)}) == 3
    assert first.depth == stack.depth
    shapes = [{name: value.shape for name, value in layer_weights(each, 0).items()} for each in (stack, first)]
    assert shapes[0] == shapes[1]


def test_a_bare_module_has_no_twin() -> None:
    with pytest.raises(UnsupportedModel, match="Mixer is not a transformers model"):
        random_twin(load(Mixer(), layers="encoder.blocks"), 0)


def test_a_pruned_model_has_no_twin(llama: LlamaForCausalLM) -> None:
    llama.model.layers[2].mlp.gate_proj = nn.Linear(32, 96, bias=False)
    llama.model.layers[2].mlp.up_proj = nn.Linear(32, 96, bias=False)
    llama.model.layers[2].mlp.down_proj = nn.Linear(96, 32, bias=False)
    with pytest.raises(UnsupportedModel, match="other shapes than its configuration describes"):
        random_twin(load(llama), 0)
