"""Samplers: what every draw is, how often each comes, and that a draw depends on its index alone."""

from __future__ import annotations

import random
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import PlanError
from layerwise.plan import Group, Plan, samplers
from layerwise.plan.samplers import Drop, Failout, Fixed, Sampler, SeededSampler, Shuffle, nodes_of

SEEDS = st.integers(0, 2**32)
DEPTHS = st.integers(2, 40)
SHARES = st.floats(0, 0.9)

# Upper 0.1 % point of chi-square with 23 degrees of freedom.
CHI_SQUARE_23 = 49.73
# Four standard errors of a share of 0.2 over 1,000 draws.
FOUR_ERRORS = 0.051


def chance(seed: int) -> random.Random:
    return random.Random(seed)


def played(plan: Plan) -> list[int]:
    """The layers that count: those in a group of gain 0 do not."""
    return [step for stage in plan.stages if not isinstance(stage, Group) for step in Plan((stage,)).order()]


# Every draw


@given(depth=DEPTHS, seed=SEEDS)
def test_a_shuffle_is_a_permutation(depth: int, seed: int) -> None:
    assert sorted(Shuffle().draw(depth, chance(seed)).order()) == list(range(depth))


@given(depth=DEPTHS, reach=st.integers(1, 50), seed=SEEDS)
def test_within_reach_no_layer_moves_further(depth: int, reach: int, seed: int) -> None:
    order = Shuffle(reach).draw(depth, chance(seed)).order()
    assert sorted(order) == list(range(depth))
    assert max(abs(position - layer) for position, layer in enumerate(order)) <= reach


def test_the_reach_is_reached_and_near_orders_are_likelier() -> None:
    orders = [SeededSampler(Shuffle(2), 8, seed=0).at(draw).order() for draw in range(400)]
    moves = Counter(abs(position - layer) for order in orders for position, layer in enumerate(order))
    assert set(moves) == {0, 1, 2}
    assert moves[0] > moves[2]


@given(depth=st.integers(1, 40), share=SHARES, seed=SEEDS, shuffle=st.booleans())
def test_what_is_dropped_is_missing_and_the_rest_stays_as_drawn(
    depth: int, share: float, seed: int, shuffle: bool
) -> None:
    base: Sampler = Shuffle() if shuffle and depth > 1 else Fixed()
    whole = base.draw(depth, chance(seed)).order()
    left = Drop(share, of=base).draw(depth, chance(seed)).order()
    assert left
    assert left == tuple(layer for layer in whole if layer in left)


@given(depth=st.integers(1, 40), share=SHARES, seed=SEEDS)
def test_preserving_loses_the_same_layers_but_runs_them(depth: int, share: float, seed: int) -> None:
    plain = Drop(share).draw(depth, chance(seed))
    silent = Drop(share, preserve=True).draw(depth, chance(seed))
    assert tuple(played(silent)) == plain.order()
    assert silent.order() == tuple(range(depth))
    assert all(stage.merge == samplers.SILENT for stage in silent.stages if isinstance(stage, Group))


@given(depth=DEPTHS, seed=SEEDS, share=SHARES, data=st.data(), preserve=st.booleans())
def test_nodes_fail_whole(depth: int, seed: int, share: float, data: st.DataObject, preserve: bool) -> None:
    nodes = nodes_of(depth, data.draw(st.integers(1, depth)))
    sampler = Failout(nodes, share, of=Shuffle(), preserve=preserve)
    left = played(sampler.draw(depth, chance(seed)))
    assert left
    assert all(set(node) <= set(left) or not set(node) & set(left) for node in nodes)
    assert [layer for layer in Shuffle().draw(depth, chance(seed)).order() if layer in left] == left


@given(depth=DEPTHS, seed=SEEDS)
def test_a_layer_on_no_node_never_fails(depth: int, seed: int) -> None:
    assert depth - 1 in Failout(((0,),), 0.9).draw(depth, chance(seed)).order()


def test_repeats_are_dropped_visit_by_visit() -> None:
    sampler = Drop(0.5, of=Fixed(Plan.parse("3*2 1")))
    drawn = {sampler.draw(4, chance(seed)).order() for seed in range(60)}
    assert drawn == {(3, 3, 1), (3, 1), (3, 3), (3,), (1,)}


@given(depth=DEPTHS, data=st.data())
def test_nodes_hold_every_layer_once_and_nearly_equally_many(depth: int, data: st.DataObject) -> None:
    nodes = nodes_of(depth, data.draw(st.integers(1, depth)))
    assert [layer for node in nodes for layer in node] == list(range(depth))
    assert max(map(len, nodes)) - min(map(len, nodes)) <= 1


# How often


def test_every_order_is_equally_likely() -> None:
    draws = 24 * 200
    found = Counter(SeededSampler(Shuffle(), 4, seed=1).at(draw).order() for draw in range(draws))
    assert set(found) == set(permutations(range(4)))
    assert sum((count - 200) ** 2 / 200 for count in found.values()) < CHI_SQUARE_23


def test_a_skewed_shuffle_would_be_seen() -> None:
    """The chi-square above can fail: keys within a reach of three positions do not make all orders equally likely."""
    found = Counter(SeededSampler(Shuffle(3), 4, seed=1).at(draw).order() for draw in range(24 * 200))
    assert sum((found[order] - 200) ** 2 / 200 for order in permutations(range(4))) > CHI_SQUARE_23


@pytest.mark.parametrize("preserve", [False, True])
def test_every_layer_is_dropped_with_its_share(preserve: bool) -> None:
    sampler = Drop(0.2, of=Shuffle(), preserve=preserve)
    draws = SeededSampler(sampler, 12, seed=0)
    left = Counter(layer for draw in range(1000) for layer in played(draws.at(draw)))
    assert all(abs(left[layer] / 1000 - 0.8) < FOUR_ERRORS for layer in range(12))


def test_every_node_fails_with_its_share() -> None:
    draws = SeededSampler(Failout(nodes_of(12, 4), 0.2), 12, seed=0)
    left = Counter(node for draw in range(1000) for node in {layer // 3 for layer in draws.at(draw).order()})
    # All four fail in 0.16 % of draws, which are drawn again: far below four standard errors.
    assert all(abs(left[node] / 1000 - 0.8) < FOUR_ERRORS for node in range(4))


# The index of a draw


@given(seed=SEEDS, stream=st.text(max_size=5), index=st.lists(st.integers(0, 10**6), min_size=1, max_size=3))
def test_a_draw_is_a_function_of_seed_stream_and_index(seed: int, stream: str, index: list[int]) -> None:
    first, again = (SeededSampler(Drop(0.3, of=Shuffle()), 12, seed, stream) for _ in range(2))
    first.at(99)  # what was drawn before does not matter
    random.seed(seed)  # nor does the generator of the process
    assert first.at(*index) == again.at(*index)


def test_other_seeds_streams_and_indices_draw_otherwise() -> None:
    draws = SeededSampler(Shuffle(), 12, seed=0)
    others = [
        SeededSampler(Shuffle(), 12, 1).at(1, 0),
        SeededSampler(Shuffle(), 12, 0, "rank 1").at(1, 0),
        draws.at(10),
        draws.at(1),
    ]
    assert len({draws.at(1, 0), *others}) == 5


@pytest.mark.parametrize(
    ("sampler", "plans"),
    [
        (Fixed(), ("0-11", "0-11")),
        (Shuffle(), ("7 8 6 3 10 5 11 4 9 0 2 1", "5 9 2 11 3 0 1 10 8 6 7 4")),
        (Shuffle(2), ("1 0 3 4 2 6 5 7-11", "1 0 2 4 3 5-8 10 9 11")),
        (Drop(0.2), ("0 2 5-7 9-11", "0-3 5-11")),
        (Drop(0.5, of=Shuffle()), ("8 6 0 2", "5 9 3 1 6 4")),
        (Failout(nodes_of(12, 4), 0.4), ("0-2 6-8", "0-11")),
    ],
    ids=str,
)
def test_draws_stay_what_they_are(sampler: Sampler, plans: tuple[str, str]) -> None:
    """A training that is carried on by a later version must draw what it would have drawn."""
    draws = SeededSampler(sampler, 12, seed=7, stream="training")
    assert (str(draws.at(0, 0)), str(draws.at(1, 0))) == plans


# Refusals


@pytest.mark.parametrize("share", [1, 1.0, -0.1, 7, float("nan"), True, "0.2", None])
@pytest.mark.parametrize("make", [Drop, lambda share: Failout(((0,), (1,)), share)], ids=["drop", "failout"])
def test_a_share_that_is_none(make: type, share: object) -> None:
    with pytest.raises(PlanError, match=r"probability from 0 up to, not including, 1; .* write 0\.2"):
        make(share)


@pytest.mark.parametrize("depth", [1, 0, -3, 2.0])
def test_a_model_of_one_layer_has_no_order(depth: int) -> None:
    with pytest.raises(PlanError, match="from 2 to"):
        Shuffle().draw(depth, chance(0))


@pytest.mark.parametrize("reach", [0, -1, 1.5, True])
def test_a_reach_that_is_none(reach: int) -> None:
    with pytest.raises(PlanError, match="how many positions a layer may move"):
        Shuffle(reach)


def test_a_plan_beyond_the_model() -> None:
    with pytest.raises(PlanError, match="11"):
        Fixed(Plan.parse("0-11")).draw(6, chance(0))


def test_layers_dropped_from_groups() -> None:
    with pytest.raises(PlanError, match=r"single visits; 0 \(1\|2\) 3 has groups"):
        Drop(0.2, of=Fixed(Plan.parse("0 (1|2) 3"))).draw(4, chance(0))


def test_nodes_that_share_layers() -> None:
    with pytest.raises(PlanError, match="on several lie 1, 2"):
        Failout(((0, 1, 2), (1, 2, 3)), 0.1)


@pytest.mark.parametrize("nodes", [(), ((),), ((0, 1), ()), ((-1,), (0,)), (("0",),)])
def test_nodes_that_are_none(nodes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(PlanError, match="tuples of layers"):
        Failout(nodes, 0.1)


def test_a_node_beyond_the_model() -> None:
    with pytest.raises(PlanError, match="hold layer 4, but the model has layers 0 to 3"):
        Failout(((0, 4),), 0.1).draw(4, chance(0))


@pytest.mark.parametrize("count", [0, 5, 2.0])
def test_layers_on_too_many_nodes(count: int) -> None:
    with pytest.raises(PlanError, match="4 layers lie on 1 to 4 nodes"):
        nodes_of(4, count)
