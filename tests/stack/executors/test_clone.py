"""Attributes that a clone's class must not inherit from its module's class."""

from abc import ABC

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2Model

from conftest import tiny_llama
from layerwise.stack import load
from layerwise.stack.executors import clone


def run_in_place() -> type:
    class Adapted(ABC):  # noqa: B024
        pass

    class Map(nn.Linear, Adapted):
        pass

    model = tiny_llama(3)
    model.model.layers[1].mlp.up_proj = Map(32, 64, bias=False)
    with torch.no_grad(), load(model).under("0 2 1"):
        model(torch.arange(5)[None])
    return Adapted


def test_an_abstract_base_class_knows_its_instances_after_a_plan_in_place() -> None:
    assert not isinstance(nn.Identity(), run_in_place())


def test_a_clone_without_what_its_base_class_keeps_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clone, "_OF_CLASSES", frozenset({"_compiled_call_impl"}))
    with pytest.raises(TypeError, match="_abc_impl"):
        isinstance(nn.Identity(), run_in_place())


def test_a_visit_is_printed_as_its_layer() -> None:
    sizes = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
    model = GPT2Model(GPT2Config(**sizes)).eval()
    block = repr(model.h[0])
    with load(model).under("0*2 1"):
        assert repr(model.h[1]) == block
