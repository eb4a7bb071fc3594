"""Where layers are placed, which route a request takes, and what a missing layer costs."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import RunError, SwarmError
from layerwise.plan import Plan
from layerwise.plan.families import leave_one_out, random_subsets
from layerwise.results import Manifest, PlanRecord, Run, Score
from layerwise.swarm.answer import COMPLETE, UNKNOWN, Expected
from layerwise.swarm.estimate import LossEstimate, estimate_of_run
from layerwise.swarm.messages import RemoteLayer, RemoteVisit
from layerwise.swarm.placement import Placement, assign_layers, assign_missing
from layerwise.swarm.route import Leg, Offer, Uncovered, cheapest


def visits_of(count: int) -> tuple[RemoteVisit, ...]:
    return tuple(RemoteVisit(number, RemoteLayer(number)) for number in range(count))


Extra = Mapping[tuple[str, RemoteVisit], float]


def seconds_of(run: Sequence[tuple[RemoteVisit, Offer]], extra: Extra) -> float:
    total, before = 0.0, None
    for visit, offer in run:
        if offer is not before:
            total += offer.hop_seconds + offer.waiting * len(offer.layers) * offer.layer_seconds
        total += offer.layer_seconds + extra.get((offer.node, visit), 0.0)
        before = offer
    return total


def seconds_of_legs(legs: Sequence[Leg], offers: Sequence[Offer], extra: Extra) -> float:
    by_name = {offer.node: offer for offer in offers}
    return seconds_of([(visit, by_name[leg.node]) for leg in legs for visit in leg.visits], extra)


def brute_force(visits: Sequence[RemoteVisit], offers: Sequence[Offer], extra: Extra) -> float | None:
    choices = [[(visit, each) for each in offers if visit.layer in each.layers] for visit in visits]
    return min((seconds_of(run, extra) for run in itertools.product(*choices)), default=None)


def drawn_offers(chance: random.Random, layers: Sequence[RemoteLayer], nodes: int, replicas: int) -> tuple[Offer, ...]:
    held: list[set[RemoteLayer]] = [set() for _ in range(nodes)]
    for layer in layers:
        for node in chance.sample(range(nodes), replicas):
            held[node].add(layer)
    return tuple(
        Offer(
            f"n{number}", frozenset(each), chance.uniform(0.1, 3), chance.uniform(0.1, 1), chance.choice([0, 0, 1, 3])
        )
        for number, each in enumerate(held)
    )


@st.composite
def problems(draw: st.DrawFn, most: int = 4) -> tuple[tuple[RemoteVisit, ...], tuple[Offer, ...], Extra]:
    chance = random.Random(draw(st.integers(0, 10**6)))
    visits = visits_of(draw(st.integers(0, most)))
    layers = [visit.layer for visit in visits if chance.random() < 0.9]
    offers = drawn_offers(chance, layers, nodes=draw(st.integers(2, 4)), replicas=draw(st.integers(1, 2)))
    extra = {(offer.node, visit): chance.uniform(0, 2) for offer in offers for visit in visits if chance.random() < 0.2}
    return visits, offers, extra


@given(problems())
def test_any_route_is_the_fastest_and_runs_every_visit_in_order(problem: tuple) -> None:
    visits, offers, extra = problem
    legs = cheapest(visits, offers, extra)
    least = brute_force(visits, offers, extra)
    if least is None:
        held = frozenset().union(*(offer.layers for offer in offers))
        assert legs == Uncovered(tuple(each for each in visits if each.layer not in held))
        return
    assert not isinstance(legs, Uncovered)
    assert seconds_of_legs(legs, offers, extra) == pytest.approx(least, rel=1e-9, abs=1e-9)
    assert tuple(visit for leg in legs for visit in leg.visits) == visits
    by_name = {offer.node: offer for offer in offers}
    assert all(visit.layer in by_name[leg.node].layers for leg in legs for visit in leg.visits)
    assert all(a.node != b.node for a, b in itertools.pairwise(legs))


@given(problems(most=12))
def test_a_node_more_never_makes_the_route_slower(problem: tuple) -> None:
    visits, offers, extra = problem
    more, fewer = (cheapest(visits, each, extra) for each in (offers, offers[1:]))
    if not isinstance(fewer, Uncovered):
        assert not isinstance(more, Uncovered)
        assert seconds_of_legs(more, offers, extra) <= seconds_of_legs(fewer, offers, extra) + 1e-9


def test_waiting_hops_make_a_node_slower() -> None:
    quiet = Offer("quiet", frozenset(RemoteLayer(number) for number in range(3)), 1.0, 1.0)
    busy = replace(quiet, node="busy", hop_seconds=0.5, waiting=1)
    assert cheapest(visits_of(3), (quiet, busy)) == (Leg("quiet", visits_of(3)),)
    assert cheapest(visits_of(3), (quiet, replace(busy, waiting=0))) == (Leg("busy", visits_of(3)),)


def test_without_any_node_every_visit_is_uncovered() -> None:
    assert cheapest(visits_of(3), []) == Uncovered(visits_of(3))
    assert cheapest((), []) == ()


def layers_of(depth: int) -> list[RemoteLayer]:
    return [RemoteLayer(number) for number in range(depth)]


def placed(depth: int, nodes: int, replicas: int = 2) -> Placement:
    return assign_layers(layers_of(depth), [f"n{number}" for number in range(nodes)], replicas)


def numbers(placement: Placement) -> dict[str, list[int]]:
    return {node: [layer.number for layer in held] for node, held in placement.items()}


@given(st.integers(1, 24), st.integers(1, 9), st.integers(1, 4))
def test_copies_of_a_layer_are_on_different_nodes_and_nodes_hold_equally_many(
    depth: int, nodes: int, replicas: int
) -> None:
    placement = placed(depth, nodes, replicas)
    assert len(placement) == nodes
    for held in placement.values():
        assert list(held) == sorted(set(held)), "in order, none twice"
        assert abs(len(held) - depth * min(replicas, nodes) / nodes) < 1
    copies = Counter(layer for held in placement.values() for layer in held)
    assert copies == dict.fromkeys(layers_of(depth), min(replicas, nodes))


@given(st.integers(1, 24), st.integers(1, 9), st.integers(1, 4), st.data())
def test_missing_copies_are_placed_on_live_nodes_and_nothing_else_moves(
    depth: int, nodes: int, replicas: int, data: st.DataObject
) -> None:
    placement = placed(depth, nodes, replicas)
    names = data.draw(st.sets(st.sampled_from(sorted(placement))))
    live = {name: placement[name] for name in sorted(names)}
    added = assign_missing(layers_of(depth), live, replicas)
    assert not any(set(placement[name]) & set(own) for name, own in added.items())
    held = Counter(layer for name, own in live.items() for layer in (*own, *added.get(name, ())))
    assert held == (dict.fromkeys(layers_of(depth), min(replicas, len(live))) if live else {})
    after = {name: (*own, *added.get(name, ())) for name, own in live.items()}
    assert assign_missing(layers_of(depth), after, replicas) == {}


def test_nodes_hold_runs_of_consecutive_layers() -> None:
    assert numbers(placed(12, 8)) == {f"n{n}": [*range(3 * n % 12, 3 * n % 12 + 3)] for n in range(8)}
    assert numbers(placed(6, 3)) == {"n0": [0, 1, 2, 3], "n1": [0, 1, 4, 5], "n2": [2, 3, 4, 5]}
    for nodes, replicas in ((1, 0), (0, 1)):
        with pytest.raises(SwarmError, match=f"must be at least 1, got {nodes} and {replicas}"):
            placed(2, nodes, replicas)


@pytest.mark.parametrize(
    ("beside", "apart", "chosen"),
    [
        ([2, 3, 4], [4, 5], "beside"),  # 4 against 3 * 1.5
        ([2, 3, 4, 5], [4, 5], "apart"),  # 5 against 3 * 1.5
        ([2], [], "apart"),  # 2 against 1 * 1.5
    ],
)
def test_a_node_without_a_neighbor_counts_as_half_as_much_again(
    beside: list[int], apart: list[int], chosen: str
) -> None:
    held = {"beside": beside, "apart": apart}
    live = {name: tuple(map(RemoteLayer, own)) for name, own in held.items()}
    assert assign_missing([RemoteLayer(1)], live, 1) == {chosen: (RemoteLayer(1),)}


DEPTH = 12
MANIFEST = Manifest("demo", None, "w", "float32", "cpu", "lib", "c", 2, 9, 8, ("random_subsets",), ("t",), 0)
WHOLE = PlanRecord(f"0-{DEPTH - 1}", "identity", "identity", 0, None, 12, 12, 12, 12)


def test_what_was_measured_is_given_as_it_was_and_anything_else_is_unknown() -> None:
    alone, both, moved = (Expected(nats, nats - 0.1, nats + 0.1, "measured") for nats in (0.5, 1.5, 9.0))
    estimate = LossEstimate(DEPTH, {"0-2 4-11": alone, "0-2 5-11": both, "1 0 2-11": moved})
    assert estimate.expected(frozenset()) == COMPLETE
    assert estimate.expected({3}) == alone
    assert estimate.expected({3, 4}) == both
    assert [estimate.expected(each) for each in ({3, 5}, {4}, set(range(DEPTH)))] == [UNKNOWN] * 3
    assert estimate.of_plan("1 0 2-11") == moved
    assert estimate.of_plan("2 0 1 3-11") == UNKNOWN


def stored(folder: Path, *, scores: bool = True) -> dict[str, float]:
    members = [*leave_one_out(DEPTH), *random_subsets(DEPTH, 20)]
    costs = {str(member.plan): 0.1 * (number + 1) for number, member in enumerate(members)}
    with Run.create(folder, MANIFEST) as run:
        run.store.add_plans([WHOLE])
        if scores:
            rows = [
                Score("effect", "delta_nll", cost * by, cost * by - 0.2, cost * by + 0.4, task=task, plan=plan)
                for plan, cost in costs.items()
                for task, by in (("all", 1.0), ("copy", 2.0))
            ]
            run.store.replace_scores("effect", [*rows, Score("effect", "nll", 1.0, plan="0-11")])
    return costs


def test_a_run_of_a_sweep_is_read(tmp_path: Path) -> None:
    costs = stored(tmp_path / "run")
    estimate = estimate_of_run(tmp_path / "run")
    assert estimate.depth == DEPTH
    assert len(costs) > DEPTH
    for plan, cost in costs.items():
        missing = frozenset(range(DEPTH)) - Plan.parse(plan).layers()
        assert estimate.expected(missing) == Expected(cost, cost - 0.2, cost + 0.4, "measured")


def test_a_run_without_effects_is_refused(tmp_path: Path) -> None:
    stored(tmp_path / "begun", scores=False)
    with pytest.raises(SwarmError, match="--families leave_one_out,every_window"):
        estimate_of_run(tmp_path / "begun")
    with pytest.raises(RunError, match="is not a run"):
        estimate_of_run(tmp_path / "nothing")
