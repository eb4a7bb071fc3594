"""Routes, placement, settings and quorum of a swarm, and the spans of an answer."""

import itertools
import math
import random
from collections import Counter, deque
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws.plans import plans
from layerwise.errors import RunError, SwarmError
from layerwise.plan import Plan
from layerwise.plan.families import leave_one_out, random_subsets
from layerwise.results import Manifest, PlanRecord, Run, Score
from layerwise.swarm.answer import COMPLETE, UNKNOWN, Decoding, ExpectedCost, TokenSpan, join_spans
from layerwise.swarm.estimate import LossEstimate, read_loss_estimate
from layerwise.swarm.messages import RemoteLayer, RemoteVisit
from layerwise.swarm.node_records import Latencies, NodeRecord
from layerwise.swarm.request import LivePlan, NoRoute, Segment, find_layers, find_route
from layerwise.swarm.serve.settings import ServeSettings
from layerwise.swarm.settings import Quorum, SwarmSettings
from layerwise.swarm.supply import Placement, assign_layers, assign_missing


def make_visits(count: int) -> tuple[RemoteVisit, ...]:
    return tuple(RemoteVisit(number, RemoteLayer(number)) for number in range(count))


def record(name: str, layers: Collection[RemoteLayer], call: float, layer: float, waiting: int = 0) -> NodeRecord:
    seconds = {"overhead": deque([call]), "per_layer": deque([layer])}
    return NodeRecord(name, frozenset(layers), Latencies(), waiting=waiting, **seconds)


def sum_seconds(run: Sequence[tuple[RemoteVisit, NodeRecord]]) -> float:
    total, before = 0.0, None
    for _, node in run:
        if node is not before:
            total += node.overhead[0] + node.waiting * len(node.layers) * node.per_layer[0]
        total += node.per_layer[0]
        before = node
    return total


def sum_route_seconds(segments: Sequence[Segment], nodes: Sequence[NodeRecord]) -> float:
    by_name = {node.name: node for node in nodes}
    return sum_seconds([(visit, by_name[segment.node]) for segment in segments for visit in segment.visits])


def find_best_seconds(visits: Sequence[RemoteVisit], nodes: Sequence[NodeRecord]) -> float | None:
    choices = [[(visit, each) for each in nodes if visit.layer in each.layers] for visit in visits]
    return min((sum_seconds(run) for run in itertools.product(*choices)), default=None)


@st.composite
def problems(draw: st.DrawFn, most: int = 4) -> tuple[tuple[RemoteVisit, ...], tuple[NodeRecord, ...]]:
    chance = random.Random(draw(st.integers(0, 10**6)))
    visits = make_visits(draw(st.integers(0, most)))
    count, replicas = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    held: list[set[RemoteLayer]] = [set() for _ in range(count)]
    for layer in [visit.layer for visit in visits if chance.random() < 0.9]:
        for node in chance.sample(range(count), replicas):
            held[node].add(layer)
    times = ((chance.uniform(0.1, 3), chance.uniform(0.1, 1), chance.choice([0, 0, 1, 3])) for _ in held)
    return visits, tuple(record(f"n{number}", each, *next(times)) for number, each in enumerate(held))


@given(problems())
def test_routes_are_optimal(problem: tuple) -> None:
    visits, nodes = problem
    segments = find_route(visits, nodes, 0.0)
    least = find_best_seconds(visits, nodes)
    if least is None:
        held = frozenset().union(*(node.layers for node in nodes))
        assert segments == NoRoute(tuple(each for each in visits if each.layer not in held))
        return
    assert not isinstance(segments, NoRoute)
    assert sum_route_seconds(segments, nodes) == pytest.approx(least, rel=1e-9, abs=1e-9)
    assert tuple(visit for segment in segments for visit in segment.visits) == visits
    by_name = {node.name: node for node in nodes}
    assert all(visit.layer in by_name[segment.node].layers for segment in segments for visit in segment.visits)
    assert all(a.node != b.node for a, b in itertools.pairwise(segments))


def test_queues_and_silence_slow_a_node() -> None:
    layers = [RemoteLayer(number) for number in range(3)]
    quiet, busy, free = (
        record("quiet", layers, 1.0, 1.0),
        record("busy", layers, 0.5, 1.0, waiting=1),
        record("free", layers, 0.5, 1.0),
    )
    assert find_route(make_visits(3), (quiet, busy), 0.0) == (Segment("quiet", make_visits(3)),)
    assert find_route(make_visits(3), (quiet, free), 0.0) == (Segment("free", make_visits(3)),)
    free.began = 1.0
    assert find_route(make_visits(3), (quiet, free), 1.4) == (Segment("free", make_visits(3)),)
    assert find_route(make_visits(3), (quiet, free), 1.6) == (Segment("quiet", make_visits(3)),)


def test_without_nodes_there_is_no_route() -> None:
    assert find_route(make_visits(3), [], 0.0) == NoRoute(make_visits(3))
    assert find_route((), [], 0.0) == ()


def numbered_layers(depth: int) -> list[RemoteLayer]:
    return [RemoteLayer(number) for number in range(depth)]


def place_layers(depth: int, nodes: int, replicas: int = 2) -> Placement:
    return assign_layers(numbered_layers(depth), [f"n{number}" for number in range(nodes)], replicas)


def numbers(placement: Placement) -> dict[str, list[int]]:
    return {node: [layer.number for layer in held] for node, held in placement.items()}


@given(st.integers(1, 24), st.integers(1, 9), st.integers(1, 4))
def test_placement_is_balanced_over_distinct_nodes(depth: int, nodes: int, replicas: int) -> None:
    placement = place_layers(depth, nodes, replicas)
    assert len(placement) == nodes
    for held in placement.values():
        assert list(held) == sorted(set(held)), "in order, none twice"
        assert abs(len(held) - depth * min(replicas, nodes) / nodes) < 1
    copies = Counter(layer for held in placement.values() for layer in held)
    assert copies == dict.fromkeys(numbered_layers(depth), min(replicas, nodes))


@given(st.integers(1, 24), st.integers(1, 9), st.integers(1, 4), st.data())
def test_only_missing_copies_are_placed(depth: int, nodes: int, replicas: int, data: st.DataObject) -> None:
    placement = place_layers(depth, nodes, replicas)
    names = data.draw(st.sets(st.sampled_from(sorted(placement))))
    live = {name: placement[name] for name in sorted(names)}
    added = assign_missing(numbered_layers(depth), live, replicas)
    assert not any(set(placement[name]) & set(own) for name, own in added.items())
    held = Counter(layer for name, own in live.items() for layer in (*own, *added.get(name, ())))
    assert held == (dict.fromkeys(numbered_layers(depth), min(replicas, len(live))) if live else {})
    after = {name: (*own, *added.get(name, ())) for name, own in live.items()}
    assert assign_missing(numbered_layers(depth), after, replicas) == {}


def test_nodes_hold_runs_of_consecutive_layers() -> None:
    assert numbers(place_layers(12, 8)) == {f"n{n}": [*range(3 * n % 12, 3 * n % 12 + 3)] for n in range(8)}
    assert numbers(place_layers(6, 3)) == {"n0": [0, 1, 2, 3], "n1": [0, 1, 4, 5], "n2": [2, 3, 4, 5]}
    for nodes, replicas in ((1, 0), (0, 1)):
        with pytest.raises(SwarmError, match=f"must be at least 1, got {nodes} and {replicas}"):
            place_layers(2, nodes, replicas)


@pytest.mark.parametrize(
    ("adjacent", "distant", "selected"),
    [
        ([2, 3, 4], [4, 5], "adjacent"),  # 4 < 3 * 1.5
        ([2, 3, 4, 5], [4, 5], "distant"),  # 5 > 3 * 1.5
        ([2], [], "distant"),  # 2 > 1 * 1.5
    ],
)
def test_placement_prefers_neighboring_layers(adjacent: list[int], distant: list[int], selected: str) -> None:
    held = {"adjacent": adjacent, "distant": distant}
    live = {name: tuple(map(RemoteLayer, layers)) for name, layers in held.items()}
    assert assign_missing([RemoteLayer(1)], live, 1) == {selected: (RemoteLayer(1),)}


DEPTH = 12
MANIFEST = Manifest("demo", None, "w", "float32", "cpu", "lib", "c", 2, 9, 8, ("random_subsets",), ("t",), 0)
WHOLE_MODEL = PlanRecord(f"0-{DEPTH - 1}", "identity", "identity", 0, None, 12, 12, 12, 12)


def test_only_measured_plans_have_a_cost() -> None:
    alone, both, moved = (ExpectedCost(nats, nats - 0.1, nats + 0.1, "measured") for nats in (0.5, 1.5, 9.0))
    estimate = LossEstimate(DEPTH, {"0-2 4-11": alone, "0-2 5-11": both, "1 0 2-11": moved})
    assert estimate.expected(frozenset()) == COMPLETE
    assert estimate.expected({3}) == alone
    assert estimate.expected({3, 4}) == both
    assert [estimate.expected(each) for each in ({3, 5}, {4}, set(range(DEPTH)))] == [UNKNOWN] * 3
    assert estimate.for_plan("1 0 2-11") == moved
    assert estimate.for_plan("2 0 1 3-11") == UNKNOWN


def store_effects(folder: Path, *, scores: bool = True) -> dict[str, float]:
    members = [*leave_one_out(DEPTH), *random_subsets(DEPTH, 20)]
    costs = {str(member.plan): 0.1 * (number + 1) for number, member in enumerate(members)}
    with Run.create(folder, MANIFEST) as run:
        run.store.add_plans([WHOLE_MODEL])
        if scores:
            rows = [
                Score("effect", "delta_nll", cost * by, cost * by - 0.2, cost * by + 0.4, task=task, plan=plan)
                for plan, cost in costs.items()
                for task, by in (("all", 1.0), ("copy", 2.0))
            ]
            run.store.replace_scores("effect", [*rows, Score("effect", "nll", 1.0, plan="0-11")])
    return costs


def test_loss_estimates_are_read_from_a_finished_sweep(tmp_path: Path) -> None:
    costs = store_effects(tmp_path / "run")
    estimate = read_loss_estimate(tmp_path / "run")
    assert estimate.depth == DEPTH
    assert len(costs) > DEPTH
    for plan, cost in costs.items():
        missing = frozenset(range(DEPTH)) - Plan.parse(plan).layers()
        assert estimate.expected(missing) == ExpectedCost(cost, cost - 0.2, cost + 0.4, "measured")

    store_effects(tmp_path / "unfinished", scores=False)
    with pytest.raises(SwarmError, match="--families leave_one_out,every_window"):
        read_loss_estimate(tmp_path / "unfinished")
    with pytest.raises(RunError, match="is not a run"):
        read_loss_estimate(tmp_path / "nothing")


REFUSED: tuple[tuple[Any, dict[str, Any], str], ...] = (
    *(
        (Decoding, {"max_new_tokens": 4, name: value}, rf"^{name} must be .*, got ")
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
    (Quorum, {}, "must have either layers or nats"),
    (Quorum, {"layers": 1, "nats": 1.0}, "must have either layers or nats"),
    (Quorum, {"nats": math.inf}, "at least 0 nats, got inf"),
    *(
        (SwarmSettings, {name: value}, f"{name} must be a positive number of seconds, got {value}")
        for name, value in (("min_deadline", 0.0), ("first_deadline", -1.0), ("first_deadline", math.inf))
    ),
    (SwarmSettings, {"spot_share": 2.0}, "spot_share must be between 0 and 1, got 2.0"),
    *(
        (ServeSettings, {name: value}, name)
        for name, value in (("port", 70_000), ("temperature", 3.0), ("max_running", 0), ("body_seconds", -1.0))
    ),
)


@pytest.mark.parametrize(("kind", "values", "words"), REFUSED)
def test_invalid_settings_are_rejected(kind: Any, values: dict[str, Any], words: str) -> None:
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
def test_quorum_text_form(text: str, quorum: Quorum) -> None:
    assert Quorum.parse(text) == quorum
    assert Quorum.parse(str(quorum)) == quorum


@pytest.mark.parametrize("text", ["", "0", "0.5", "-1", "half", "0.5 nat per token", "1e3 nats", "8 of 12", "٣ nats"])
def test_invalid_quorums_are_rejected(text: str) -> None:
    with pytest.raises(SwarmError, match="quorum must be"):
        Quorum.parse(text)


def test_an_unreachable_quorum_is_rejected() -> None:
    with pytest.raises(SwarmError, match="quorum must be at most the 6 layers of the plan, got 8 layers"):
        SwarmSettings(quorum=Quorum(layers=8)).resolve_quorum(6)
    assert SwarmSettings(quorum=Quorum(layers=6)).resolve_quorum(6) == Quorum(layers=6)
    assert SwarmSettings(quorum=Quorum(nats=0.5)).resolve_quorum(1) == Quorum(nats=0.5)
    assert SwarmSettings().resolve_quorum(5) == Quorum(layers=3)


@given(st.integers(1, 12), st.sets(st.integers(0, 11)))
def test_a_layer_quorum_counts_live_layers(least: int, missing: set[int]) -> None:
    live = set(range(12)) - missing
    assert (Quorum(layers=least).explain_refusal(live, missing, UNKNOWN) is None) == (len(live) >= least)


def test_quorum_messages() -> None:
    cost = ExpectedCost(0.4, 0.3, 0.6, "measured")
    assert Quorum(layers=8).explain_refusal(range(5), range(5, 12), cost) == (
        "5 of 12 layers are live and the quorum is 8 layers; missing: 5-11"
    )
    assert Quorum(nats=0.6).explain_refusal(range(9), [9, 10, 11], cost) is None
    assert Quorum(nats=0.5).explain_refusal(range(9), [9, 10, 11], cost) == (
        "the missing layers are expected to cost 0.4 nats/token, at most 0.6, and the quorum is 0.5 nats; missing: 9-11"
    )
    assert Quorum(nats=0.5).explain_refusal([0, 2], [1], UNKNOWN) == (
        "the cost of the missing layers is unknown and the quorum is 0.5 nats; missing: 1"
    )
    assert Quorum(nats=9.0).explain_refusal([], [0], cost) == "no layer is live and the quorum is 9 nats"
    assert Quorum(nats=0.0).explain_refusal(range(12), [], COMPLETE) is None


def _live(text: str, *missing: int) -> LivePlan:
    live = LivePlan.create(Plan.parse(text), [RemoteLayer(number) for number in missing])
    assert live is not None
    return live


def test_a_live_plan_has_replacements_and_group_boundaries() -> None:
    replaced = {RemoteLayer(number): RemoteLayer(number, "b") for number in (1, 2)}
    live = LivePlan.create(Plan.parse("0-3"), [RemoteLayer(2)], replaced)
    assert str(live.running) == "0 b:1 3"
    assert live.missing_numbers == (2,)

    assert _live("0 (1 2|3) 4").find_boundaries() == (0, 1, 3, 4)
    assert _live("0-3").find_boundaries() == (0,)


@given(plans(depth=6), st.sets(st.integers(0, 5), max_size=4))
def test_visits_match_the_running_plan(plan: Plan, missing: set[int]) -> None:
    gone = [RemoteLayer(number) for number in missing]
    live = LivePlan.create(plan, gone)
    if live is None:
        assert set(find_layers(plan)) <= set(gone)
        return
    assert [step.layer for step in live.running.steps()] == [visit.layer.number for visit in live.visits]
    assert not {visit.layer for visit in live.visits} & set(gone)
    slots = [visit.slot for visit in live.visits]
    assert slots == sorted(set(slots))
    assert [plan.steps()[slot].layer for slot in slots] == [visit.layer.number for visit in live.visits]


WHOLE = TokenSpan(0, 5, "0-11")
LACKING = TokenSpan(2, 5, "0-3 6-11", (4, 5), ExpectedCost(0.3, 0.1, 0.5, "fitted"))


@given(st.integers(1, 40), st.data())
def test_complete_spans_are_merged(count: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, count - 1))
    known = data.draw(st.integers(min(at, 1), at))  # the spans are told where they change, not with every token
    before = (TokenSpan(0, known, "0-11"),) if at else ()
    assert join_spans(before, at, (TokenSpan(0, count - at, "0-11"),)) == (TokenSpan(0, count, "0-11"),)


def test_spans_are_joined_where_layers_are_lost_or_return() -> None:
    assert join_spans((TokenSpan(0, 2, "0-11"), LACKING), 9, ()) == (
        TokenSpan(0, 2, "0-11"),
        TokenSpan(2, 9, "0-3 6-11", (4, 5), LACKING.expected),
    )

    *_, last = join_spans((TokenSpan(0, 2, "0-11"), LACKING), 5, (TokenSpan(0, 3, "0-11"),))
    assert last == TokenSpan(5, 8, "0-11", (), COMPLETE, earlier=(4, 5))
    assert not last.is_complete

    doubted = TokenSpan(0, 5, "0-11", (), UNKNOWN, doubted=("node-1",))
    *_, last = join_spans((doubted,), 5, (TokenSpan(0, 3, "0-11", doubted=("node-0",)),))
    assert last.doubted == ("node-0", "node-1")

    first, second = join_spans((WHOLE,), 4, (TokenSpan(0, 3, "0-3 6-11", (4, 5), LACKING.expected),))
    assert (first.start, first.stop, second.start, second.stop) == (0, 4, 4, 7)
