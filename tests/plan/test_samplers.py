"""Draws of samplers, their frequencies, dependence on the index alone, and the layers of subsets and nodes."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import PlanError
from layerwise.plan import Group, Plan, samplers
from layerwise.plan.samplers import (
    LAYOUTS,
    RULES,
    Drop,
    Failout,
    Fixed,
    Sampler,
    SeededSampler,
    Shuffle,
    layer_subset,
    node_layout,
    shuffled_subset,
)

SEEDS = st.integers(0, 2**32)
DEPTHS = st.integers(2, 40)
SHARES = st.floats(0, 0.9)

# Upper 0.1 % points of chi-square with 9 and 23 degrees of freedom.
CHI_SQUARE_9, CHI_SQUARE_23 = 27.88, 49.73
# Four standard errors of a share of 0.2 over 1,000 draws.
FOUR_ERRORS = 0.051


def chance(seed: int) -> random.Random:
    return random.Random(seed)


def played(plan: Plan) -> list[int]:
    return [step for stage in plan.stages if not isinstance(stage, Group) for step in Plan((stage,)).order()]


@given(depth=DEPTHS, reach=st.one_of(st.none(), st.integers(1, 50)), seed=SEEDS)
def test_a_shuffle_is_a_permutation_and_no_layer_moves_beyond_reach(depth: int, reach: int | None, seed: int) -> None:
    order = Shuffle(reach).draw(depth, chance(seed)).order()
    assert sorted(order) == list(range(depth))
    assert max(abs(position - layer) for position, layer in enumerate(order)) <= (reach or depth)


def test_the_reach_is_reached_and_near_orders_are_likelier() -> None:
    orders = [SeededSampler(Shuffle(2), 8, seed=0).at(draw).order() for draw in range(400)]
    moves = Counter(abs(position - layer) for order in orders for position, layer in enumerate(order))
    assert set(moves) == {0, 1, 2}
    assert moves[0] > moves[2]


@given(depth=st.integers(1, 40), share=SHARES, seed=SEEDS, shuffle=st.booleans())
def test_dropped_layers_are_missing_and_the_rest_keeps_its_order(
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
    nodes = node_layout(depth, data.draw(st.integers(1, depth)))
    sampler = Failout(nodes, share, of=Shuffle(), preserve=preserve)
    left = played(sampler.draw(depth, chance(seed)))
    assert left
    assert all(set(node) <= set(left) or not set(node) & set(left) for node in nodes)
    assert [layer for layer in Shuffle().draw(depth, chance(seed)).order() if layer in left] == left


def test_repeats_are_dropped_visit_by_visit() -> None:
    sampler = Drop(0.5, of=Fixed(Plan.parse("3*2 1")))
    drawn = {sampler.draw(4, chance(seed)).order() for seed in range(60)}
    assert drawn == {(3, 3, 1), (3, 1), (3, 3), (3,), (1,)}


SHUFFLED = SeededSampler(Shuffle(), 4, seed=1)


@pytest.mark.parametrize(
    ("draw", "outcomes", "bound"),
    [
        (lambda number, _: SHUFFLED.at(number).order(), permutations(range(4)), CHI_SQUARE_23),
        (lambda _, source: layer_subset(5, 2, "random", source), combinations(range(5), 2), CHI_SQUARE_9),
        (lambda _, source: shuffled_subset((2, 5, 7, 9), source).order(), permutations((2, 5, 7, 9)), CHI_SQUARE_23),
    ],
)
def test_every_outcome_is_equally_likely(
    draw: Callable[[int, random.Random], tuple[int, ...]], outcomes: Iterable[tuple[int, ...]], bound: float
) -> None:
    possible, source = set(outcomes), chance(1)
    found = Counter(draw(number, source) for number in range(200 * len(possible)))
    assert set(found) == possible
    assert sum((count - 200) ** 2 / 200 for count in found.values()) < bound


@pytest.mark.parametrize("preserve", [False, True])
def test_every_layer_is_dropped_with_its_share(preserve: bool) -> None:
    sampler = Drop(0.2, of=Shuffle(), preserve=preserve)
    draws = SeededSampler(sampler, 12, seed=0)
    left = Counter(layer for draw in range(1000) for layer in played(draws.at(draw)))
    assert all(abs(left[layer] / 1000 - 0.8) < FOUR_ERRORS for layer in range(12))


def test_every_node_fails_with_its_share() -> None:
    draws = SeededSampler(Failout(node_layout(12, 4), 0.2), 12, seed=0)
    left = Counter(node for draw in range(1000) for node in {layer // 3 for layer in draws.at(draw).order()})
    # All four fail in 0.16 % of draws and are redrawn: far below four standard errors.
    assert all(abs(left[node] / 1000 - 0.8) < FOUR_ERRORS for node in range(4))


@given(seed=SEEDS, stream=st.text(max_size=5), index=st.lists(st.integers(0, 10**6), min_size=1, max_size=3))
def test_a_draw_is_a_function_of_seed_stream_and_index(seed: int, stream: str, index: list[int]) -> None:
    first, again = (SeededSampler(Drop(0.3, of=Shuffle()), 12, seed, stream) for _ in range(2))
    first.at(99)  # what was drawn before does not matter
    random.seed(seed)  # nor does the generator of the process
    assert first.at(*index) == again.at(*index)


@pytest.mark.parametrize(
    ("sampler", "plans"),
    [
        (Fixed(), ("0-11", "0-11")),
        (Shuffle(), ("7 8 6 3 10 5 11 4 9 0 2 1", "5 9 2 11 3 0 1 10 8 6 7 4")),
        (Shuffle(2), ("1 0 3 4 2 6 5 7-11", "1 0 2 4 3 5-8 10 9 11")),
        (Drop(0.2), ("0 2 5-7 9-11", "0-3 5-11")),
        (Drop(0.5, of=Shuffle()), ("8 6 0 2", "5 9 3 1 6 4")),
        (Failout(node_layout(12, 4), 0.4), ("0-2 6-8", "0-11")),
    ],
    ids=str,
)
def test_draws_stay_what_they_are(sampler: Sampler, plans: tuple[str, str]) -> None:
    draws = SeededSampler(sampler, 12, seed=7, stream="training")
    assert (str(draws.at(0, 0)), str(draws.at(1, 0))) == plans


@given(data=st.data(), depth=st.integers(1, 60), rule=st.sampled_from(RULES), seed=st.integers(0, 99))
def test_layers_are_kept_once_and_in_order(data: st.DataObject, depth: int, rule: str, seed: int) -> None:
    count = data.draw(st.integers(1, depth))
    layers = layer_subset(depth, count, rule, chance(seed))
    assert len(layers) == count
    assert list(layers) == sorted(set(layers))
    assert set(layers) <= set(range(depth))


@given(data=st.data(), depth=st.integers(1, 60))
def test_even_means_nearly_equal_gaps_also_at_both_ends(data: st.DataObject, depth: int) -> None:
    count = data.draw(st.integers(1, depth))
    layers = layer_subset(depth, count, "even", chance(0))
    # The kept layer contains the middle of each of `count` equal stretches of the depth.
    assert all(layer <= (index + 0.5) * depth / count < layer + 1 for index, layer in enumerate(layers))


@pytest.mark.parametrize(
    ("rule", "layers"), [("first", (0, 1, 2, 3, 4)), ("last", (7, 8, 9, 10, 11)), ("even", (1, 3, 6, 8, 10))]
)
def test_rules_keep_the_described_five_of_twelve_layers(rule: str, layers: tuple[int, ...]) -> None:
    assert layer_subset(12, 5, rule, chance(0)) == layers


@given(depth=st.integers(1, 40), count=st.integers(1, 40), layout=st.sampled_from(LAYOUTS))
def test_every_layer_lies_on_one_node(depth: int, count: int, layout: str) -> None:
    count = min(count, depth)
    nodes = node_layout(depth, count, layout)
    assert len(nodes) == count
    assert sorted(layer for node in nodes for layer in node) == list(range(depth))
    assert max(map(len, nodes)) - min(map(len, nodes)) <= 1
    assert all(list(node) == sorted(node) for node in nodes)


NONE = (1, -0.1, float("nan"), True, "0.2")
REFUSED: list[tuple[Callable[[], object], str]] = [
    *((partial(Drop, share), "the share of layers dropped must be a probability") for share in NONE),  # type: ignore[arg-type]
    *((partial(Failout, ((0,), (1,)), share), "the share of nodes that fail must") for share in NONE),  # type: ignore[arg-type]
    *((partial(Shuffle().draw, depth, chance(0)), "from 2 to") for depth in (1, 0, -3, 2.0)),  # type: ignore[arg-type]
    *((partial(Shuffle, reach), "reach must be an integer number of positions") for reach in (0, -1, 1.5, True)),  # type: ignore[arg-type]
    *((partial(Failout, nodes, 0.1), "tuples of layers") for nodes in ((), ((),), ((0, 1), ()), ((-1,), (0,)))),
    *((partial(node_layout, 4, count), "the number of nodes must be from 1 to 4") for count in (0, 5, 2.0)),  # type: ignore[arg-type]
    *((partial(layer_subset, 4, count, "first", chance(0)), "to keep must be from 1 to 4") for count in (0, 5, 2.0)),  # type: ignore[arg-type]
    (lambda: Fixed(Plan.parse("0-11")).draw(6, chance(0)), "11"),
    (lambda: Drop(0.2, of=Fixed(Plan.parse("0 (1|2) 3"))).draw(4, chance(0)), "layers can be dropped at random only"),
    (lambda: Failout(((0, 1, 2), (1, 2, 3)), 0.1), "each layer must be on only one node, but several nodes have 1, 2"),
    (lambda: Failout(((0, 4),), 0.1).draw(4, chance(0)), "the nodes have layer 4, but the model has layers 0 to 3"),
    (lambda: layer_subset(4, 2, "frist", chance(0)), "did you mean first"),
    (lambda: node_layout(12, 4, "ring"), "unknown layout 'ring'"),
]


@pytest.mark.parametrize(("draw", "reason"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_invalid_draws_are_refused(draw: Callable[[], object], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        draw()
