"""Graphs of several plans, how they are walked and divided, and the entries of a block list."""

import copy
import math
import pickle
import threading
from abc import ABC
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from conftest import tiny_llama
from laws.symbolic import distinct_evaluations
from layerwise.errors import ModelError
from layerwise.plan import Plan, Sublayer, families
from layerwise.stack import load
from layerwise.stack.executors.capture import Merger, follow
from layerwise.stack.executors.entries import entries, own_blocks
from layerwise.stack.executors.graph import GraphExecutor, build, most_live
from stack.random_plans import plans
from tier import by_tier, first_fast


def layer(index: int, state: torch.Tensor, part: Sublayer | None = None, source: str | None = None) -> torch.Tensor:
    share = {None: 1.0, "attn": 0.25, "mlp": -0.5}[part] * {None: 1.0, "a": 0.75, "b": 0.5}[source]
    return state + share * torch.tanh(state * (index + 1) / 3 + index)


def one_by_one(plan: Plan, state: torch.Tensor) -> torch.Tensor:
    groups: list[Merger] = []
    for step in plan.steps():
        state = follow(step, state, layer(step.layer, state, step.sublayer, step.source), groups)
    return state


@given(st.lists(plans(5, sources=(None, None, "a", "b")), min_size=1, max_size=6))
@settings(max_examples=by_tier(fast=8, nightly=100), deadline=None)
def test_a_walk_gives_every_plan_the_bits_of_running_it_alone(wanted: list[Plan]) -> None:
    root = torch.linspace(-1, 1, 7)
    graph = build(wanted)
    walk = GraphExecutor(graph, layer, root)
    reached = {node: state.clone() for node, state in walk.states()}
    for plan in wanted:
        assert torch.equal(reached[graph.ends[plan]], one_by_one(plan, root)), plan
    assert walk.evaluated == graph.evaluations == distinct_evaluations(wanted)
    assert graph.naive == sum(len(plan.steps()) for plan in set(wanted))
    assert (walk.live_states, walk._mergers) == ({}, {})


@pytest.mark.parametrize("depth", first_fast([12, 30, 60], 2))
def test_live_states_grow_with_the_logarithm_of_the_plans(depth: int) -> None:
    wanted = [member.plan for member in families.family("every_window", depth)]
    walk = GraphExecutor(build(wanted), layer, torch.zeros(2))
    for _ in walk.states():
        pass
    assert walk.most_live <= 2 + math.log2(len(wanted))


@pytest.mark.parametrize(
    ("plan", "states"),
    # In a group: the state it starts from, while another branch reads it, and the two of the merge, base and sum.
    [("0 1 2", 1), ("(0|1)", 3), ("0 (1|2|3) 4", 3), ("(0|(1|2))", 5), ("(0|1) (2|3)", 3)],
)
def test_the_states_that_a_group_holds_by_hand(plan: str, states: int) -> None:
    assert most_live(build([Plan.parse(plan)])) == states


@pytest.mark.parametrize("family", ["every_window", "leave_one_out", "painters"])
def test_a_plan_that_is_wanted_first_is_there_first_at_no_further_cost(family: str) -> None:
    first = Plan.identity(12)
    wanted = [*(member.plan for member in families.family(family, 12)), first]
    graph = build(wanted)
    walk = GraphExecutor(graph, layer, torch.zeros(2), first=first)
    found = {node: state.clone() for node, state in walk.states()}
    assert next(iter(found)) == graph.ends[first]
    assert walk.evaluated == graph.evaluations
    assert walk.most_live <= 12 + 2 + math.log2(len(wanted))
    assert walk.live_states == {}
    plain = dict(GraphExecutor(graph, layer, torch.zeros(2)).states())
    assert all(torch.equal(found[node], plain[node]) for node in plain)


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
    with entries(own, [own[1]], everyone=True), pytest.raises(ModelError, match="leave `with"):
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
