"""The Painters' grid as published: T layers, N kept, M = T - 2N - 1 affected."""

import random

import pytest

from layerwise.plan import Member, Plan
from layerwise.plan.painters import PAINTERS_SEEDS, painters, published_windows


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


def test_a_window_of_one_layer_is_written_without_a_group() -> None:
    last = {member.strategy: str(member.plan) for member in painters(32) if member.affected == 1}
    assert last["skip"] == "0-15 17-31"
    assert last["looped_parallel"] == "0-15 16*3 17-31"
    assert {last[strategy] for strategy in ("middle_repeat", "reverse", "random", "parallel")} == {"0-31"}


def test_other_seeds_and_loops() -> None:
    members = painters(8, seeds=[5], loops=(1, 3, 5))
    assert {member.draw for member in members} == {None, 5}
    widest = {member.strategy: str(member.plan) for member in members if member.affected == 7}
    assert widest["looped_parallel_1"] == widest["parallel"]
    assert widest["looped_parallel"] == widest["parallel"] + "*3"
    assert widest["looped_parallel_5"] == widest["parallel"] + "*5"


def test_a_generator_of_seeds_serves_every_window() -> None:
    once: tuple[Member, ...] = painters(8, seeds=(seed for seed in (1, 2)))
    assert once == painters(8, seeds=[1, 2])
