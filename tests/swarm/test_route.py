"""Routes: equal to brute force, and the laws that any fastest route keeps."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.swarm.messages import RemoteLayer, RemoteVisit
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


@pytest.mark.parametrize("seed", range(3))
def test_twelve_layers_take_what_brute_force_finds(seed: int) -> None:
    visits = visits_of(12)
    offers = drawn_offers(random.Random(seed), [visit.layer for visit in visits], nodes=6, replicas=2)
    legs = cheapest(visits, offers)
    assert not isinstance(legs, Uncovered)
    assert seconds_of_legs(legs, offers, {}) == pytest.approx(brute_force(visits, offers, {}), rel=1e-12)


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
