"""Routes: equal to brute force, and the laws that any cheapest route keeps."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.swarm.messages import RemoteLayer, RemoteVisit
from layerwise.swarm.route import EXACT, Leg, Offer, Order, Prices, Route, Uncovered, cheapest, next_leg


def visits_of(count: int) -> tuple[RemoteVisit, ...]:
    return tuple(RemoteVisit(number, RemoteLayer(number)) for number in range(count))


def cost_of(
    run: Sequence[tuple[RemoteVisit, Offer | None]],
    prices: Prices,
    extra: Mapping[tuple[str, RemoteVisit], float],
    nats: Mapping[RemoteVisit, float],
) -> float:
    """What it costs to run visits in this order on these nodes, added up visit by visit."""
    total, before = 0.0, None
    for visit, offer in run:
        if offer is None:
            total += prices.nats * nats[visit]
            continue
        if offer is not before:
            queue = offer.waiting * len(offer.layers) * offer.layer_seconds
            total += prices.latency * (offer.hop_seconds + queue)
        busy = offer.layer_seconds + extra.get((offer.node, visit), 0.0)
        total += busy * (prices.latency + prices.energy * offer.watts)
        before = offer
    return total


def brute_force(
    visits: Sequence[RemoteVisit],
    offers: Sequence[Offer],
    prices: Prices,
    order: Order,
    extra: Mapping[tuple[str, RemoteVisit], float],
    nats: Mapping[RemoteVisit, float],
) -> float | None:
    """The least cost over every choice of nodes and omissions, and over every order where it is free."""
    choices: list[list[tuple[RemoteVisit, Offer | None]]] = []
    for visit in visits:
        held: list[tuple[RemoteVisit, Offer | None]] = [(visit, each) for each in offers if visit.layer in each.layers]
        if visit in nats and prices.nats > 0:
            held.append((visit, None))
        choices.append(held)
    orders = itertools.permutations(choices) if order == "any" else [choices]
    runs = (run for each in orders for run in itertools.product(*each))
    return min((cost_of(run, prices, extra, nats) for run in runs), default=None)


def drawn_offers(chance: random.Random, layers: Sequence[RemoteLayer], nodes: int, replicas: int) -> tuple[Offer, ...]:
    held: list[set[RemoteLayer]] = [set() for _ in range(nodes)]
    for layer in layers:
        for node in chance.sample(range(nodes), replicas):
            held[node].add(layer)
    return tuple(
        Offer(
            f"n{number}",
            frozenset(each),
            chance.uniform(0.1, 3),
            chance.uniform(0.1, 1),
            chance.uniform(1, 50),
            chance.choice([0, 0, 1, 3]),
        )
        for number, each in enumerate(held)
    )


PRICES = [Prices(energy=0.05), Prices(latency=0.0, energy=1.0), Prices(1.0, 2.0, 0.1)]


@pytest.mark.parametrize("prices", PRICES)
@pytest.mark.parametrize("seed", range(3))
def test_twelve_layers_in_their_order_cost_what_brute_force_finds(prices: Prices, seed: int) -> None:
    chance = random.Random(seed)
    visits = visits_of(12)
    offers = drawn_offers(chance, [visit.layer for visit in visits], nodes=6, replicas=2)
    nats = {visit: chance.uniform(0, 3) for visit in visits[2::5]}
    route = cheapest(visits, offers, prices, "fixed", may_omit=nats)
    assert isinstance(route, Route)
    assert route.cost == pytest.approx(brute_force(visits, offers, prices, "fixed", {}, nats), rel=1e-12)


@st.composite
def problems(draw: st.DrawFn, most: int = 4) -> tuple[tuple[RemoteVisit, ...], tuple[Offer, ...], Prices, dict, dict]:
    chance = random.Random(draw(st.integers(0, 10**6)))
    visits = visits_of(draw(st.integers(0, most)))
    layers = [visit.layer for visit in visits if chance.random() < 0.9]
    offers = drawn_offers(chance, layers, nodes=draw(st.integers(2, 4)), replicas=draw(st.integers(1, 2)))
    extra = {(offer.node, visit): chance.uniform(0, 2) for offer in offers for visit in visits if chance.random() < 0.2}
    nats = {visit: chance.uniform(-0.1, 1) for visit in visits if chance.random() < 0.5}
    return visits, offers, draw(st.sampled_from([*PRICES, Prices(nats=1.0)])), extra, nats


@given(problems(), st.sampled_from(["fixed", "any"]))
def test_any_route_is_the_cheapest_and_adds_up(problem: tuple, order: Order) -> None:
    visits, offers, prices, extra, nats = problem
    route = cheapest(visits, offers, prices, order, extra, nats)
    least = brute_force(visits, offers, prices, order, extra, nats)
    if least is None:
        held = frozenset().union(*(offer.layers for offer in offers))
        assert route == Uncovered(
            tuple(each for each in visits if each.layer not in held and (each not in nats or not prices.nats))
        )
        return
    assert isinstance(route, Route)
    assert route.cost == pytest.approx(least, rel=1e-9, abs=1e-9)
    assert set(route.omitted) <= set(nats)
    run = [visit for leg in route.legs for visit in leg.visits]
    assert sorted([*run, *route.omitted], key=lambda visit: visit.slot) == [*visits]
    by_name = {offer.node: offer for offer in offers}
    assert all(visit.layer in by_name[leg.node].layers for leg in route.legs for visit in leg.visits)
    assert all(a.node != b.node for a, b in itertools.pairwise(route.legs))
    if order == "fixed":
        assert run == sorted(run, key=lambda visit: visit.slot)


@given(problems(most=EXACT), st.sampled_from(["fixed", "any"]))
def test_a_node_more_never_makes_the_route_dearer(problem: tuple, order: Order) -> None:
    visits, offers, prices, extra, nats = problem
    prices = replace(prices, nats=max(prices.nats, 0.5))
    more, fewer = (cheapest(visits, each, prices, order, extra, nats) for each in (offers, offers[1:]))
    assert isinstance(fewer, Uncovered) or (isinstance(more, Route) and more.cost <= fewer.cost + 1e-9)


def test_beyond_twelve_layers_the_rule_is_close_to_the_best() -> None:
    ratios = []
    for seed in range(20):
        visits = visits_of(EXACT)
        offers = drawn_offers(random.Random(seed), [visit.layer for visit in visits], nodes=6, replicas=2)
        exact = cheapest(visits, offers, PRICES[0], "any")
        # A thirteenth layer that may be left out for nothing and that nobody holds: the greedy rule, the same problem.
        free = RemoteVisit(99, RemoteLayer(99))
        by_rule = cheapest((*visits, free), offers, replace(PRICES[0], nats=1.0), "any", may_omit={free: 0.0})
        assert isinstance(exact, Route)
        assert isinstance(by_rule, Route)
        assert by_rule.omitted == (free,)
        ratios.append(by_rule.cost / exact.cost)
    assert min(ratios) >= 1 - 1e-9
    assert sum(ratios) / len(ratios) < 1.1


LAYERS = frozenset(RemoteLayer(number) for number in range(3))
QUIET = Offer("quiet", LAYERS, 1.0, 1.0, 10.0)


def test_waiting_hops_make_a_node_dearer() -> None:
    busy = replace(QUIET, node="busy", hop_seconds=0.5, waiting=1)
    route = cheapest(visits_of(3), (QUIET, busy), Prices(), "fixed")
    assert isinstance(route, Route)
    assert route.legs == (Leg("quiet", visits_of(3)),)
    assert next_leg(visits_of(3)[2:], (QUIET, busy), Prices()) == Leg("quiet", visits_of(3)[2:])


def test_a_covered_layer_is_left_out_only_at_a_price() -> None:
    nats = {visits_of(3)[1]: 0.1}
    kept, sold = (
        cheapest(visits_of(3), [QUIET], prices, "fixed", may_omit=nats) for prices in (Prices(), Prices(1, 1))
    )
    assert isinstance(kept, Route)
    assert isinstance(sold, Route)
    assert kept.omitted == ()
    assert sold.omitted == visits_of(3)[1:2]
    assert sold.legs == (Leg("quiet", (visits_of(3)[0], visits_of(3)[2])),)
    assert sold.cost == pytest.approx(3.1)


def test_the_next_leg_is_where_the_fewest_hops_wait() -> None:
    first = replace(QUIET, node="a", layers=frozenset({RemoteLayer(0)}), waiting=2)
    second = replace(QUIET, node="b", layers=frozenset({RemoteLayer(1)}))
    assert next_leg(visits_of(2), (first, second), Prices()) == Leg("b", visits_of(2)[1:])
    assert next_leg(visits_of(3), (first, second), Prices()) == Uncovered(visits_of(3)[2:])


def test_without_any_node_what_may_be_left_out_is() -> None:
    for count in (3, EXACT + 1):
        for order in ("fixed", "any"):
            route = cheapest(visits_of(count), [], Prices(1, 1), order, may_omit=dict.fromkeys(visits_of(count), 1.0))
            assert isinstance(route, Route)
            assert (route.legs, route.omitted) == ((), visits_of(count))
