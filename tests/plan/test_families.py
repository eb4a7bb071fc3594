"""The plans of each family, their cost, and what a sweep shares, counted independently by `laws.symbolic`."""

import random
from collections.abc import Callable
from functools import partial
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws.symbolic import distinct_evaluations
from layerwise.errors import PlanError
from layerwise.plan import FAMILIES, Member, Plan, Reduction, edits, families, family
from layerwise.plan.painters import PAINTERS_SEEDS, LayerWindow, half_window, painters, published_windows, window


def naive_evaluations(members: tuple[Member, ...]) -> int:
    return sum(len(member.plan.order()) for member in members)


@pytest.mark.parametrize(
    ("name", "plans", "naive", "distinct"),
    [
        ("leave_one_out", 30, 870, 464),
        ("leave_branch_out", 60, 1_800, 959),
        ("every_window", 464, 8_990, 4_524),
        ("painters", 225, 6_975, 4_487),
        ("bits", 150, 4_500, 5 * 465 + 29),
    ],
)
def test_what_a_family_costs_at_thirty_layers(name: str, plans: int, naive: int, distinct: int) -> None:
    members = family(name, 30)
    assert len(members) == plans
    assert naive_evaluations(members) == naive
    assert distinct_evaluations(member.plan for member in members) == distinct


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("depth", [3, 4, 5, 12, 33])
def test_every_family_holds_at_every_depth(name: str, depth: int) -> None:
    members = family(name, depth)
    assert members
    assert {member.family for member in members} == {name}
    for member in members:
        member.plan.check(depth)
        assert member.affected >= 1
    keys = {(member.strategy, member.affected, member.draw, str(member.plan)) for member in members}
    assert len(keys) == len(members), "two members that nothing tells apart"
    assert members == family(name, depth), "a family is the same every time"


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("depth", [0, -1, True, 2.0, None])
def test_a_depth_that_is_too_small_or_no_number_is_refused(name: str, depth: int) -> None:
    with pytest.raises(PlanError, match="depth must be an integer number of layers from"):
        family(name, depth)


def test_every_window_skips_every_run_once() -> None:
    skipped = {tuple(sorted(set(range(7)) - member.plan.layers())) for member in families.every_window(7)}
    assert skipped == {tuple(range(a, b)) for a in range(7) for b in range(a + 1, 8)} - {tuple(range(7))}
    assert len(families.every_window(7)) == len(skipped)


@pytest.mark.parametrize(("depth", "plans"), [(2, 2), (3, 3), (4, 10), (7, 63), (12, 480), (33, 480)])
def test_random_subsets_are_spread_over_the_numbers_of_layers_left_out(depth: int, plans: int) -> None:
    members = families.random_subsets(depth)
    skipped = [frozenset(range(depth)) - member.plan.layers() for member in members]
    assert len(set(skipped)) == len(members) == plans
    whole = Plan.identity(depth)
    assert [member.plan for member in members] == [edits.skip(whole, *missing) for missing in skipped]
    sizes = [len(missing) for missing in skipped]
    assert sizes == [member.affected for member in members]
    counts = [sizes.count(size) for size in range(1, depth // 2 + 1)]
    assert sum(counts) == plans
    assert all(count >= min(480 // len(counts), comb(depth, size)) for size, count in enumerate(counts, start=1))
    assert families.random_subsets(33, seed=1) != families.random_subsets(33)


def test_repeat_blocks_is_the_published_scan() -> None:
    members = families.repeat_blocks(80)
    assert len(members) == 3_240
    assert "0-44 [45-51]*2 52-79" in {str(member.plan) for member in members}
    assert {member.plan.evaluations - 80 - member.affected for member in members} == {0}
    thrice = families.repeat_blocks(4, times=(3,))
    assert {member.plan.evaluations - 4 - 2 * member.affected for member in thrice} == {0}


def test_damped_repeats_are_the_repeats_with_half_of_every_update() -> None:
    damped, whole = families.damped_repeats(5), families.repeat_blocks(5)
    assert [member.affected for member in damped] == [member.affected for member in whole]
    for half, once in zip(damped, whole, strict=True):
        assert half.plan.order() == once.plan.order()
        gains = [close for step in half.plan.steps() for close in step.closes]
        assert gains == [Reduction("gain", 0.5)] * 2


def test_a_window_runs_every_strategy_of_the_painters_as_the_edits_do() -> None:
    whole = Plan.identity(9)
    members = families.window(9, 2, 5, seeds=(4,), loops=(3, 5))
    assert {(member.family, member.affected) for member in members} == {("window 2-5", 4)}
    assert {member.strategy: member.plan for member in members} == {
        "skip": edits.skip(whole, 2, 3, 4, 5),
        "middle_repeat": Plan.parse("0 1 3*4 6-8"),
        "reverse": edits.reverse(whole, 2, 6),
        "random": edits.shuffle(whole, 2, 6, 4),
        "parallel": edits.parallel(whole, 2, 6),
        "looped_parallel": edits.loop(whole, 2, 6, 3),
        "looped_parallel_5": edits.loop(whole, 2, 6, 5),
    }


@given(st.data(), st.integers(2, 12))
def test_every_strategy_leaves_the_layers_outside_a_window_as_they_are(data: st.DataObject, depth: int) -> None:
    first = data.draw(st.integers(0, depth - 1))
    last = data.draw(st.integers(first, min(depth - 1, first + depth - 2)))
    for member in families.window(depth, first, last, seeds=(0,)):
        order = member.plan.order()
        assert order[:first] == tuple(range(first))
        assert order[len(order) - (depth - 1 - last) :] == tuple(range(last + 1, depth))
        assert set(order[first : len(order) - (depth - 1 - last)]) <= set(range(first, last + 1))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        *(
            (partial(families.window, 9, first, last), "a window must contain some, but not all, of the layers 0-8")
            for first, last in ((3, 9), (5, 2), (0, 8), (-1, 3))
        ),
        (lambda: family("painter", 12), "unknown family 'painter'; did you mean painters"),
        (lambda: families.painters(1), "from 2 to"),
        (lambda: families.painters(6, seeds=[None]), "seed must be an integer"),  # type: ignore[list-item]
        (lambda: families.painters(6, loops=[0]), "a repeat count must be an integer of at least 1"),
    ],
)
def test_a_wrong_family_is_refused_with_the_reason(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        make()


def test_a_gain_sweep_runs_from_the_mean_to_the_sum() -> None:
    members = families.gain_sweep(8)
    assert [member.affected for member in members] == [7] * 7 + [5] * 5 + [3] * 3
    widest = [member.plan for member in members if member.affected == 7]
    assert widest[0].matrix() == Plan.parse("0 (1|2|3|4|5|6|7)").matrix()
    assert widest[-1].matrix() == Plan.parse("0 (1|2|3|4|5|6|7):sum").matrix()
    assert members[1].strategy == str(Reduction("gain", 2)) == "gain=2"


def test_looped_runs_every_window_of_more_layers_than_one_every_number_of_times() -> None:
    members = families.looped(8)
    assert [(member.affected, member.strategy) for member in members] == [
        (affected, f"loops={times}") for affected in (7, 5, 3) for times in range(1, 9)
    ]
    assert str(members[2].plan) == "0 (1|2|3|4|5|6|7)*3"
    loops, after = 8 * (7 + 5 + 3), 8 * (0 + 1 + 2)
    # The layers kept before a narrow window, except 0, are a branch of a wider one.
    assert distinct_evaluations(member.plan for member in members) == 1 + loops + after


def members_at(depth: int, kept: int) -> dict[str, list[Plan]]:
    affected = depth - 2 * kept - 1
    found: dict[str, list[Plan]] = {}
    for member in painters(depth):
        if member.affected == affected:
            found.setdefault(member.strategy, []).append(member.plan)
    return found


@pytest.mark.parametrize("depth", [2, 3, 12, 24, 30, 32, 33])
def test_the_strategies_run_the_published_layers(depth: int) -> None:
    for kept in range(depth // 2):
        prefix = list(range(kept + 1))
        middle = list(range(kept + 1, depth - kept))
        suffix = list(range(depth - kept, depth))
        found = members_at(depth, kept)
        assert found["skip"] == [Plan.of(prefix + suffix)]
        assert [plan.order() for plan in found["middle_repeat"]] == [
            (*prefix, *[int(depth / 2)] * len(middle), *suffix)
        ]
        assert found["reverse"] == [Plan.of(prefix + middle[::-1] + suffix)]
        for seed, plan in zip(PAINTERS_SEEDS, found["random"], strict=True):
            drawn = list(middle)
            random.Random(seed).shuffle(drawn)
            assert plan == Plan.of(prefix + drawn + suffix)
        for strategy, loops in (("parallel", 1), ("looped_parallel", 3)):
            (plan,) = found[strategy]
            assert plan.order() == (*prefix, *(middle * loops), *suffix)
            assert plan.cost().stages == len(prefix) + loops + len(suffix)
            assert plan.matrix()[-1][-1] == (1.0 if suffix else 1 / len(middle))


def test_the_windows_are_those_of_the_published_figures() -> None:
    """Figure 15: N = 13 of 32 layers skips 5. Section 3.7: N = 15 of 32, and N = 11 of 24, affect one layer."""
    assert published_windows(32)[13] == (14, 19)
    assert published_windows(32)[15] == (16, 17)
    assert published_windows(24)[11] == (12, 13)
    assert len(published_windows(32)) == 16
    assert [stop - start for start, stop in published_windows(30)] == list(range(29, 0, -2))


def test_painters_take_any_seeds_and_write_one_layer_without_a_group() -> None:
    last = {member.strategy: str(member.plan) for member in painters(32) if member.affected == 1}
    assert last["skip"] == "0-15 17-31"
    assert last["looped_parallel"] == "0-15 16*3 17-31"
    assert {last[strategy] for strategy in ("middle_repeat", "reverse", "random", "parallel")} == {"0-31"}

    once: tuple[Member, ...] = painters(8, seeds=(seed for seed in (1, 2)))
    assert once == painters(8, seeds=[1, 2])


def test_other_seeds_and_loops() -> None:
    members = painters(8, seeds=[5], loops=(1, 3, 5))
    assert {member.draw for member in members} == {None, 5}
    widest = {member.strategy: str(member.plan) for member in members if member.affected == 7}
    assert widest["looped_parallel_1"] == widest["parallel"]
    assert widest["looped_parallel"] == widest["parallel"] + "*3"
    assert widest["looped_parallel_5"] == widest["parallel"] + "*5"


def test_strategies_are_compared_only_on_one_window() -> None:
    """Families whose plans of one size change different layers have no window to compare strategies on."""
    others = [member for name in FAMILIES if name != "painters" for member in family(name, 6)]
    assert half_window(others, 6) is None
    assert half_window([*others, *window(6, 1, 2)], 6) == LayerWindow("window 1-2", 2)
    assert half_window([*others, *window(6, 1, 2), *painters(6)], 6) == LayerWindow("painters", 3)
