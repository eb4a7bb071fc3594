"""The graph of many plans computes each node once, with few live states and the bits of single plans."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laws.symbolic import distinct_evaluations
from layerwise.plan import Plan, Sublayer, families
from layerwise.stack.executors.graph import GraphExecutor, build, inputs, most_live, schedule
from layerwise.stack.executors.state import Merger, follow
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


@given(st.lists(plans(5, sources=(None, None, "a", "b")), min_size=1, max_size=6))
@settings(max_examples=by_tier(fast=8, nightly=100), deadline=None)
def test_a_schedule_computes_every_node_once_and_after_what_it_reads(wanted: list[Plan]) -> None:
    graph = build(wanted)
    order = schedule(graph)
    position_of = {index: position for position, index in enumerate(order)}
    assert sorted(order) == list(range(len(graph.nodes)))
    for index, node in enumerate(graph.nodes):
        assert all(position_of[source] < position_of[index] for source in inputs(node))


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
