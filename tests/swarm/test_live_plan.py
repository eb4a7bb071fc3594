"""What is left of a plan keeps its slots."""

from hypothesis import given
from hypothesis import strategies as st

from laws.plans import plans
from layerwise.plan import Plan
from layerwise.swarm.live_plan import LivePlan, layers_of
from layerwise.swarm.messages import RemoteLayer


def _live(text: str, *missing: int) -> LivePlan:
    live = LivePlan.of(Plan.parse(text), [RemoteLayer(number) for number in missing])
    assert live is not None
    return live


def test_a_layer_keeps_its_slot_when_others_go() -> None:
    live = _live("0 1 (2|3) 1 4", 0, 2)
    assert str(live.running) == "1 (3) 1 4"
    assert [(visit.slot, visit.layer.number) for visit in live.visits] == [(1, 1), (3, 3), (4, 1), (5, 4)]
    assert live.missing_numbers == (0, 2)
    assert LivePlan.of(Plan.parse("0 1"), [RemoteLayer(0), RemoteLayer(1)]) is None


def test_a_replaced_layer_runs_in_the_same_slot() -> None:
    replaced = {RemoteLayer(number): RemoteLayer(number, "b") for number in (1, 2)}
    live = LivePlan.of(Plan.parse("0-3"), [RemoteLayer(2)], replaced)
    assert str(live.running) == "0 b:1 3"
    assert live.missing_numbers == (2,)


def test_hops_begin_at_the_seams_of_groups() -> None:
    assert _live("0 (1 2|3) 4").seams() == (0, 1, 3, 4)
    assert _live("0-3").seams() == (0,)


@given(plans(depth=6), st.sets(st.integers(0, 5), max_size=4))
def test_what_runs_are_the_steps_of_the_running_plan(plan: Plan, missing: set[int]) -> None:
    gone = [RemoteLayer(number) for number in missing]
    live = LivePlan.of(plan, gone)
    if live is None:
        assert set(layers_of(plan)) <= set(gone)
        return
    assert [step.layer for step in live.running.steps()] == [visit.layer.number for visit in live.visits]
    assert not {visit.layer for visit in live.visits} & set(gone)
    slots = [visit.slot for visit in live.visits]
    assert slots == sorted(set(slots))
    assert [plan.steps()[slot].layer for slot in slots] == [visit.layer.number for visit in live.visits]
