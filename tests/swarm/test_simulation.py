"""The simulation of many nodes: it carries what its bounds allow, and says what bounds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.swarm.rehearsal.simulation import World, by_size, nodes_of_one_router, simulate, uncovered

CALM = World(20, life=1e9, rack_life=1e9, tail=50.0, tokens=2_000)


@pytest.mark.parametrize(
    ("world", "bound"),
    [
        (replace(CALM, router=0.002, load=4.0), "router"),
        (replace(CALM, bandwidth=2e6, load=4.0), "network"),
        (replace(CALM, router=1e-5, load=16.0), "nodes"),
    ],
)
def test_what_saturates_bounds_the_throughput(world: World, bound: str) -> None:
    measured, limits = simulate(world), world.limits()
    assert world.saturates() == bound
    # Tokens that are under way when counting begins, or ends, are the error of the count.
    tolerated = world.load * world.nodes / (world.tokens / 2)
    assert measured.throughput == pytest.approx(limits[bound], rel=tolerated)
    assert measured.busy[bound] > 0.95
    assert measured.degraded == 0


def test_an_idle_swarm_takes_what_its_hops_take() -> None:
    world = replace(CALM, load=0.05)
    measured = simulate(world)
    alone = world.parts * (world.router + world.hop + world.service)
    assert alone <= measured.p50 <= 1.05 * alone


def test_the_router_is_to_be_divided_from_the_size_at_which_it_bounds() -> None:
    size = nodes_of_one_router(CALM)
    assert replace(CALM, nodes=size + 1).saturates() == "router"
    assert replace(CALM, nodes=size - 1).saturates() == "nodes"
    assert nodes_of_one_router(replace(CALM, routers=4)) == 4 * size


def test_lost_nodes_cost_retries_and_in_the_end_layers() -> None:
    dying = replace(CALM, life=5.0, repair=5.0, rack_life=1e9)
    measured = simulate(dying)
    assert measured.retries > 0
    few = replace(CALM, nodes=4, life=60.0, repair=60.0)
    assert 0.4 < uncovered(few) < 0.6
    assert uncovered(replace(few, nodes=40)) < 0.01
    assert simulate(few).degraded > 0


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, again = (by_size(replace(CALM, tokens=500), (5, 20)) for _ in range(2))
    assert first == again
