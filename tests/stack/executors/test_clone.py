"""Attributes that a clone's class must not inherit from its module's class."""

from abc import ABC

import pytest
import torch
from torch import nn

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
