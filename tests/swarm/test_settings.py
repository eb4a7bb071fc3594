"""Settings of a swarm, the plan that is running, and the spans of an answer."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws.plans import plans
from layerwise.errors import SwarmError
from layerwise.plan import Plan
from layerwise.swarm.answer import COMPLETE, UNKNOWN, Decoding, Expected, TokenSpan, continued
from layerwise.swarm.live_plan import LivePlan, layers_of
from layerwise.swarm.messages import RemoteLayer
from layerwise.swarm.serve.settings import ServeSettings
from layerwise.swarm.settings import Quorum, SwarmSettings

REFUSED: tuple[tuple[Any, dict[str, Any], str], ...] = (
    *(
        (Decoding, {"max_new_tokens": 4, name: value}, rf"^{name} is .*; write ")
        for name, value in (
            ("max_new_tokens", 0),
            ("min_new_tokens", 5),
            ("temperature", -0.1),
            ("top_p", 0.0),
            ("top_k", -1),
            ("repetition_penalty", math.inf),
            ("stop", ("",)),
            ("stop", ("a" * 2_000,)),
            ("seed", 2**63),
        )
    ),
    (Quorum, {}, "one of the two"),
    (Quorum, {"layers": 1, "nats": 1.0}, "one of the two"),
    (Quorum, {"nats": math.inf}, "a number of nats from 0, not inf"),
    *(
        (SwarmSettings, {name: value}, f"{name} is {value}; give a number of seconds above 0")
        for name, value in (("hop_floor", 0.0), ("first_deadline", -1.0), ("first_deadline", math.inf))
    ),
    (SwarmSettings, {"spot_share": 2.0}, "spot_share is 2.0; give a share from 0 to 1"),
    (SwarmSettings, {"history_bytes": 0}, "history_bytes is 0; give a number from 1"),
    *(
        (ServeSettings, {name: value}, name)
        for name, value in (("port", 70_000), ("temperature", 3.0), ("most_running", 0), ("body_seconds", -1.0))
    ),
)


@pytest.mark.parametrize(("kind", "values", "words"), REFUSED)
def test_a_value_that_cannot_be_is_refused_in_a_sentence(kind: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(SwarmError, match=words) as caught:
        kind(**values)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "quorum"),
    [
        ("8", Quorum(layers=8)),
        (" 8 layers ", Quorum(layers=8)),
        ("0.5 nats", Quorum(nats=0.5)),
        (".25 nats", Quorum(nats=0.25)),
    ],
)
def test_how_a_quorum_is_written(text: str, quorum: Quorum) -> None:
    assert Quorum.parse(text) == quorum
    assert Quorum.parse(str(quorum)) == quorum


@pytest.mark.parametrize("text", ["", "0", "0.5", "-1", "half", "0.5 nat per token", "1e3 nats", "8 of 12", "٣ nats"])
def test_what_is_no_quorum_is_refused(text: str) -> None:
    with pytest.raises(SwarmError, match="a quorum is a"):
        Quorum.parse(text)


def test_a_quorum_can_be_met() -> None:
    with pytest.raises(
        SwarmError, match="the model has 6 layers, so that it never meets a quorum of 8 layers: write 6"
    ):
        SwarmSettings(quorum=Quorum(layers=8)).quorum_of(6)
    assert SwarmSettings(quorum=Quorum(layers=6)).quorum_of(6) == Quorum(layers=6)
    assert SwarmSettings(quorum=Quorum(nats=0.5)).quorum_of(1) == Quorum(nats=0.5)
    assert SwarmSettings().quorum_of(5) == Quorum(layers=3)


@given(st.integers(1, 12), st.sets(st.integers(0, 11)))
def test_a_quorum_of_layers_counts_those_that_are_live(least: int, missing: set[int]) -> None:
    live = set(range(12)) - missing
    assert (Quorum(layers=least).verdict(live, missing, UNKNOWN) is None) == (len(live) >= least)


def test_the_sentences() -> None:
    cost = Expected(0.4, 0.3, 0.6, "measured")
    assert Quorum(layers=8).verdict(range(5), range(5, 12), cost) == (
        "5 of 12 layers are live and the quorum is 8 layers; missing: 5-11"
    )
    assert Quorum(nats=0.6).verdict(range(9), [9, 10, 11], cost) is None
    assert Quorum(nats=0.5).verdict(range(9), [9, 10, 11], cost) == (
        "the missing layers are expected to cost 0.4 nats per token, at most 0.6, and the quorum is 0.5 nats; "
        "missing: 9-11"
    )
    assert Quorum(nats=0.5).verdict([0, 2], [1], UNKNOWN) == (
        "nobody knows what the missing layers cost and the quorum is 0.5 nats; missing: 1"
    )
    assert Quorum(nats=9.0).verdict([], [0], cost) == "no layer is live and the quorum is 9 nats"
    assert Quorum(nats=0.0).verdict(range(12), [], COMPLETE) is None


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


WHOLE = TokenSpan(0, 5, "0-11")
LACKING = TokenSpan(2, 5, "0-3 6-11", (4, 5), Expected(0.3, 0.1, 0.5, "fitted"))


@given(st.integers(1, 40), st.data())
def test_what_the_whole_model_wrote_in_two_parts_is_one_span(count: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, count - 1))
    known = data.draw(st.integers(min(at, 1), at))  # the spans are told where they change, not with every token
    before = (TokenSpan(0, known, "0-11"),) if at else ()
    assert continued(before, at, (TokenSpan(0, count - at, "0-11"),)) == (TokenSpan(0, count, "0-11"),)


def test_the_last_span_reaches_to_where_the_second_swarm_began() -> None:
    assert continued((TokenSpan(0, 2, "0-11"), LACKING), 9, ()) == (
        TokenSpan(0, 2, "0-11"),
        TokenSpan(2, 9, "0-3 6-11", (4, 5), LACKING.expected),
    )


def test_what_lacked_before_follows_all_later_tokens() -> None:
    *_, last = continued((TokenSpan(0, 2, "0-11"), LACKING), 5, (TokenSpan(0, 3, "0-11"),))
    assert last == TokenSpan(5, 8, "0-11", (), COMPLETE, earlier=(4, 5))
    assert not last.is_whole


def test_a_doubted_node_is_named_in_all_later_tokens() -> None:
    doubted = TokenSpan(0, 5, "0-11", (), UNKNOWN, doubted=("node-1",))
    *_, last = continued((doubted,), 5, (TokenSpan(0, 3, "0-11", doubted=("node-0",)),))
    assert last.doubted == ("node-0", "node-1")


def test_tokens_that_are_made_again_are_the_second_swarms() -> None:
    first, second = continued((WHOLE,), 4, (TokenSpan(0, 3, "0-3 6-11", (4, 5), LACKING.expected),))
    assert (first.start, first.stop, second.start, second.stop) == (0, 4, 4, 7)
