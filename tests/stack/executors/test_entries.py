"""Entries of a block list, and clones of its blocks."""

import copy
import pickle
import threading
from abc import ABC
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2Model

from conftest import tiny_llama
from layerwise.errors import ModelError
from layerwise.stack import load
from layerwise.stack.executors.entries import entries, own_blocks


def blocks() -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(2, 2) for _ in range(3))


def test_entries_answer_walks_and_the_tree_stays() -> None:
    own = blocks()
    names = [name for name, _ in own.named_parameters()]
    listed = [own[2], own[0], own[2], nn.Identity()]
    with entries(own, listed):
        assert len(own) == 4
        assert list(own) == listed
        assert own[-1] is listed[-1]
        assert list(own[1:3]) == listed[1:3]
        assert [name for name, _ in own.named_parameters()] == names
        assert len(own_blocks(own)) == 3
    assert len(own) == 3


def test_entries_are_gone_after_an_exception() -> None:
    own = blocks()
    before = list(own)

    def fail_inside() -> None:
        with entries(own, [nn.Identity()]):
            assert len(own) == 1
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail_inside()
    assert list(own) == before
    assert type(own) is nn.ModuleList
    assert not [name for name in vars(own) if "layerwise" in name]


def test_entries_of_a_thread_are_seen_by_it_alone_and_come_before_those_of_everyone() -> None:
    own = blocks()
    lengths: dict[str, int] = {}

    def elsewhere() -> None:
        lengths["elsewhere"] = len(own)

    with entries(own, [nn.Identity()] * 5, everyone=True), entries(own, [nn.Identity()] * 2):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        lengths["here"] = len(own)
    assert lengths == {"elsewhere": 5, "here": 2}


CHANGES: dict[str, Callable[[Any], Any]] = {
    "append": lambda own: own.append(nn.Identity()),
    "insert": lambda own: own.insert(0, nn.Identity()),
    "extend": lambda own: own.extend([nn.Identity()]),
    "item": lambda own: own.__setitem__(0, nn.Identity()),
    "delete": lambda own: own.__delitem__(0),
    "pop": lambda own: own.pop(0),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": pickle.dumps,
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_list_is_neither_changed_nor_copied_meanwhile(change: str) -> None:
    own = blocks()
    before = list(own)
    with entries(own, [own[1]], everyone=True), pytest.raises(ModelError, match="leave that `with"):
        CHANGES[change](own)
    assert list(own) == before
    copy.deepcopy(own).append(nn.Identity())


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


def test_a_visit_is_printed_as_its_layer() -> None:
    sizes = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
    model = GPT2Model(GPT2Config(**sizes)).eval()
    block = repr(model.h[0])
    with load(model).under("0*2 1"):
        assert repr(model.h[1]) == block
