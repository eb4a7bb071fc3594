"""Plan families: all plans of one experiment for a model of a given depth.

Each function returns `Member`s and needs only a depth; `FAMILIES` lists those on the command line. No family includes
the identity plan itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb

from layerwise.errors import PlanError, near_matches
from layerwise.plan import edits
from layerwise.plan.checks import SUBLAYERS, TYPES, WeightType, check_depth, describe_value
from layerwise.plan.painters import (
    PAINTERS_LOOPS,
    Member,
    painters,
    published_windows,
    window,
)
from layerwise.plan.plan import Plan, Reduction, Visit
from layerwise.plan.samplers import layer_subset

__all__ = [
    "FAMILIES",
    "PAINTERS_LOOPS",
    "Member",
    "assignments",
    "bits",
    "bits_noise",
    "damped_repeats",
    "every_window",
    "family",
    "gain_sweep",
    "leave_branch_out",
    "leave_one_out",
    "looped",
    "painters",
    "random_subsets",
    "repeat_blocks",
    "swap_adjacent",
    "window",
]

SUBSETS = 480
"""Default number of random layer sets to skip."""

INTEGER_TYPES = TYPES[:5]
"""Default types of `bits` and `bits_noise`: all but MXFP4, which is a floating-point type."""

TWICE = 2
"""Default number of runs of a block in `repeat_blocks`."""


def leave_one_out(depth: int) -> tuple[Member, ...]:
    """Skip each single layer (the Painters' Figure 2).

    >>> [str(member.plan) for member in leave_one_out(4)]
    ['1-3', '0 2 3', '0 1 3', '0-2']
    """
    check_depth(depth, least=2)
    whole = Plan.identity(depth)
    return tuple(Member(edits.skip(whole, layer), "leave_one_out", "skip", 1) for layer in range(depth))


def leave_branch_out(depth: int) -> tuple[Member, ...]:
    """Skip each single sublayer of each layer.

    >>> [(member.strategy, str(member.plan)) for member in leave_branch_out(2)]
    [('without_attn', '0.mlp 1'), ('without_attn', '0 1.mlp'), ('without_mlp', '0.attn 1'), ('without_mlp', '0 1.attn')]
    """
    check_depth(depth)
    whole = Plan.identity(depth)
    return tuple(
        Member(edits.without_branch(whole, layer, sublayer), "leave_branch_out", f"without_{sublayer}", 1)
        for sublayer in SUBLAYERS
        for layer in range(depth)
    )


def swap_adjacent(depth: int) -> tuple[Member, ...]:
    """Exchange each layer with the next (the Painters' Figure 2; Lad et al., 2024, arXiv 2406.19384).

    >>> [str(member.plan) for member in swap_adjacent(4)]
    ['1 0 2 3', '0 2 1 3', '0 1 3 2']
    """
    check_depth(depth, least=2)
    whole = Plan.identity(depth)
    return tuple(Member(edits.swap(whole, layer, layer + 1), "swap_adjacent", "swap", 2) for layer in range(depth - 1))


def every_window(depth: int) -> tuple[Member, ...]:
    """Skip every run of 1 to depth - 1 adjacent layers, as Gromov et al. (2024, arXiv 2403.17887) do.

    `affected` is the length of the run. There are depth (depth + 1) / 2 - 1 members.

    >>> [str(member.plan) for member in every_window(3)]
    ['1 2', '0 2', '0 1', '2', '0']
    """
    check_depth(depth, least=2)
    whole = Plan.identity(depth)
    return tuple(
        Member(edits.skip(whole, *range(start, start + width)), "every_window", "skip", width)
        for width in range(1, depth)
        for start in range(depth - width + 1)
    )


def random_subsets(depth: int, count: int = SUBSETS, seed: int = 0) -> tuple[Member, ...]:
    """Skip random sets of 1 to depth / 2 layers, as when machines that hold layers fail.

    There are at most `count` distinct sets, divided evenly over their sizes. `affected` is the number of skipped
    layers.

    >>> [(member.affected, str(member.plan)) for member in random_subsets(6, count=4)]
    [(1, '0-2 4 5'), (1, '1-5'), (2, '0 1 3 5'), (3, '0 1 4')]
    >>> len(random_subsets(12)), len(random_subsets(30))
    (480, 480)
    """
    check_depth(depth, least=2)
    whole, chance = Plan.identity(depth), edits.generator(seed)
    members: list[Member] = []
    for size in range(1, depth // 2 + 1):
        sets_left, sizes_left = count - len(members), depth // 2 + 1 - size
        wanted = min(comb(depth, size), -(-sets_left // sizes_left))
        if wanted == comb(depth, size):
            chosen = list(combinations(range(depth), size))
        else:
            chosen = []
            while len(chosen) < wanted:
                layers = layer_subset(depth, size, "random", chance)
                chosen.extend([layers] if layers not in chosen else [])
        members.extend(
            Member(edits.skip(whole, *layers), "random_subsets", "skip", size, draw)
            for draw, layers in enumerate(chosen)
        )
    return tuple(members)


def repeat_blocks(depth: int, times: Iterable[int] = (TWICE,)) -> tuple[Member, ...]:
    """Repeat every range of adjacent layers for each count in `times`: the "RYS" scan (Ng, dnkhng.github.io/posts/rys).

    `affected` is the length of the run; counts other than two are part of the strategy, as in `repeat_3`. At depth 80
    the blocks that run twice are the 3,240 pairs (i, j) of that scan.

    >>> [str(member.plan) for member in repeat_blocks(3)]
    ['0*2 1 2', '0 1*2 2', '0 1 2*2', '[0 1]*2 2', '0 [1 2]*2', '[0-2]*2']
    >>> [(member.strategy, str(member.plan)) for member in repeat_blocks(2, times=(3,))]
    [('repeat_3', '0*3 1'), ('repeat_3', '0 1*3'), ('repeat_3', '[0 1]*3')]
    """
    check_depth(depth)
    whole = Plan.identity(depth)
    return tuple(
        Member(
            edits.repeat(whole, start, start + width, count),
            "repeat_blocks",
            "repeat" if count == TWICE else f"repeat_{count}",
            width,
        )
        for count in times
        for width in range(1, depth + 1)
        for start in range(depth - width + 1)
    )


def damped_repeats(depth: int) -> tuple[Member, ...]:
    """Run every range of adjacent layers twice, adding half of the update in each pass.

    The total update stays about the same. If layers are Euler steps of a differential equation (Chen et al., 2018,
    arXiv 1806.07366), each pass is half a step. `affected` is the length of the run.

    >>> [str(member.plan) for member in damped_repeats(2)]
    ['(0):gain=0.5*2 1', '0 (1):gain=0.5*2', '(0 1):gain=0.5*2']
    """
    check_depth(depth)
    whole, gain = Plan.identity(depth), 1 / TWICE
    return tuple(
        Member(edits.repeat(whole, start, start + width, TWICE, gain), "damped_repeats", "damped_repeat", width)
        for width in range(1, depth + 1)
        for start in range(depth - width + 1)
    )


def bits(depth: int, types: Iterable[str] = INTEGER_TYPES) -> tuple[Member, ...]:
    """Quantize each single layer to each GGUF type in `types`; `strategy` is the type.

    >>> [str(member.plan) for member in bits(3, types=("Q4_0", "Q8_0"))]
    ['Q4_0:0 1 2', '0 Q4_0:1 2', '0 1 Q4_0:2', 'Q8_0:0 1 2', '0 Q8_0:1 2', '0 1 Q8_0:2']
    """
    check_depth(depth)
    return tuple(
        Member(_with_source(depth, layer, str(WeightType(name))), "bits", name, 1)
        for name in types
        for layer in range(depth)
    )


def bits_noise(depth: int, types: Iterable[str] = INTEGER_TYPES, seeds: Iterable[int] = (0,)) -> tuple[Member, ...]:
    """Add Gaussian noise with the norm of the quantization error to each single layer: the null of `bits`.

    `strategy` is the type, and `draw` the seed.

    >>> [str(member.plan) for member in bits_noise(2, types=("Q4_0",), seeds=(0, 1))]
    ['Q4_0-noise0:0 1', '0 Q4_0-noise0:1', 'Q4_0-noise1:0 1', '0 Q4_0-noise1:1']
    """
    check_depth(depth)
    draws = tuple(seeds)
    return tuple(
        Member(_with_source(depth, layer, str(WeightType(name, seed))), "bits_noise", name, 1, seed)
        for name in types
        for seed in draws
        for layer in range(depth)
    )


def looped(depth: int, loops: Iterable[int] | None = None) -> tuple[Member, ...]:
    """Run looped parallel on every published window of more than one layer (the Painters' Figure 10).

    `loops` defaults to 1 to the depth (published: 1 to 28 at 32 layers). `affected` is M, and `strategy` names the
    count.

    >>> [(member.strategy, str(member.plan)) for member in looped(4, loops=(1, 3))]
    [('loops=1', '0 (1|2|3)'), ('loops=3', '0 (1|2|3)*3')]
    """
    check_depth(depth, least=3)
    whole = Plan.identity(depth)
    counts = tuple(range(1, depth + 1) if loops is None else loops)
    return tuple(
        Member(edits.loop(whole, start, stop, times), "looped", f"loops={times}", stop - start)
        for start, stop in published_windows(depth)
        if stop - start > 1
        for times in counts
    )


def gain_sweep(depth: int) -> tuple[Member, ...]:
    """Run parallel on every published window of M layers with gains 1 to M, from the mean of the updates to their sum.

    `affected` is M, and `strategy` names the gain.

    >>> [(member.strategy, str(member.plan)) for member in gain_sweep(3)]
    [('gain=1', '0 (1|2):gain=1'), ('gain=2', '0 (1|2):gain=2')]
    """
    check_depth(depth, least=3)
    whole = Plan.identity(depth)
    return tuple(
        Member(edits.parallel(whole, start, stop, merge), "gain_sweep", str(merge), stop - start)
        for start, stop in published_windows(depth)
        for merge in (Reduction("gain", gain) for gain in range(1, stop - start + 1))
        if stop - start > 1
    )


FAMILIES: dict[str, Callable[[int], tuple[Member, ...]]] = {
    "painters": painters,
    "leave_one_out": leave_one_out,
    "leave_branch_out": leave_branch_out,
    "swap_adjacent": swap_adjacent,
    "every_window": every_window,
    "random_subsets": random_subsets,
    "repeat_blocks": repeat_blocks,
    "damped_repeats": damped_repeats,
    "bits": bits,
    "bits_noise": bits_noise,
    "looped": looped,
    "gain_sweep": gain_sweep,
}


def family(
    name: str, depth: int, *, loops: Iterable[int] | None = None, times: Iterable[int] = (TWICE,)
) -> tuple[Member, ...]:
    """Return the members of a named family, with `loops` for `looped` and `times` for `repeat_blocks`.

    >>> len(family("painters", 30)), len(family("looped", 30, loops=range(1, 29)))
    (225, 392)
    """
    if name not in FAMILIES:
        raise PlanError(f"unknown family {name!r}; {near_matches(str(name), FAMILIES)}")
    if name == "looped":
        return looped(depth, loops)
    if name == "repeat_blocks":
        return repeat_blocks(depth, times)
    return FAMILIES[name](depth)


def _with_source(depth: int, layer: int, name: str) -> Plan:
    return Plan(tuple(Visit(each, source=name if each == layer else None) for each in range(depth)))


def assignments(models: Sequence[str], depth: int, draws: int, seed: int, *, own_depth: bool) -> tuple[Plan, ...]:
    """Draw `draws` merged models of `depth` layers, each layer from one of `models`.

    With at least as many `models` as layers no two layers come from the same one; with fewer, every model gives L / K
    layers rounded down or up (Freiberger et al. 2024, section 4.4). With `own_depth` position p runs layer p of a drawn
    model; otherwise layer s(p), for a uniform permutation s. Draw n does not depend on `draws`.

    >>> for plan in assignments(["a", "b"], depth=4, draws=2, seed=0, own_depth=True):
    ...     print(plan)
    a:0 b:1 a:2 b:3
    a:0 b:1 b:2 a:3

    Raises `PlanError` for fewer than two models, a name given twice, one layer, or no draws.
    """
    check_depth(depth, least=2)
    if len(models) < 2 or len(set(models)) < len(models):
        raise PlanError(f"models must be at least two distinct names, got {list(models)}")
    if type(draws) is not int or draws < 1:
        raise PlanError(f"draws must be an integer of at least 1, got {describe_value(draws)}")
    return tuple(_assignment(models, depth, random.Random(f"{seed}/{own_depth}/{n}"), own_depth) for n in range(draws))


def _assignment(models: Sequence[str], depth: int, chance: random.Random, own_depth: bool) -> Plan:
    rounds, rest = divmod(depth, len(models))
    sources = [*models] * rounds + chance.sample(list(models), rest)
    chance.shuffle(sources)
    layers = list(range(depth))
    if not own_depth:
        chance.shuffle(layers)
    return Plan(tuple(Visit(layer, source=name) for layer, name in zip(layers, sources, strict=True)))
