"""Plan families: functions from the depth of a model to a list of plans.

`FAMILIES` lists the families that the command line offers. In a `Member`, `affected` is the number of layers that the
plan changes.
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
"""Default number of times that `repeat_blocks` runs a range of layers."""


def leave_one_out(depth: int) -> tuple[Member, ...]:
    """Skip each layer in turn (Sun et al., 2024, arXiv 2407.09298, Figure 2).

    >>> [str(member.plan) for member in leave_one_out(4)]
    ['1-3', '0 2 3', '0 1 3', '0-2']
    """
    check_depth(depth, least=2)
    whole = Plan.identity(depth)
    return tuple(Member(edits.skip(whole, layer), "leave_one_out", "skip", 1) for layer in range(depth))


def leave_branch_out(depth: int) -> tuple[Member, ...]:
    """Skip each sublayer of each layer in turn.

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
    """Exchange each layer with the next one in turn (Lad et al., 2024, arXiv 2406.19384).

    >>> [str(member.plan) for member in swap_adjacent(4)]
    ['1 0 2 3', '0 2 1 3', '0 1 3 2']
    """
    check_depth(depth, least=2)
    whole = Plan.identity(depth)
    return tuple(Member(edits.swap(whole, layer, layer + 1), "swap_adjacent", "swap", 2) for layer in range(depth - 1))


def every_window(depth: int) -> tuple[Member, ...]:
    """Skip each range of 1 to depth - 1 adjacent layers in turn (Gromov et al., 2024, arXiv 2403.17887).

    There are depth (depth + 1) / 2 - 1 such ranges.

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
    """Skip random sets of 1 to depth / 2 layers, as if the machines that hold them failed.

    At most `count` distinct sets are drawn, about equally many of each size.

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
    """Repeat each range of adjacent layers in turn (the "RYS" scan of Ng, dnkhng.github.io/posts/rys).

    `times` lists how many times a range runs. Counts other than two become part of the strategy, as in `repeat_3`.

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
    """In turn, run each range of adjacent layers twice, and add only half of its update each time.

    The total update stays about the same. If layers are seen as Euler steps of a differential equation (Chen et al.,
    2018, arXiv 1806.07366), each run is half a step.

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
    """Quantize each layer in turn to each GGUF type in `types`, which is the `strategy` of the member.

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
    """Add Gaussian noise as large as the quantization error to each layer in turn: the baseline of `bits`.

    In each `Member`, `strategy` is the type, and `draw` is the seed.

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
    """Run the layers of each window in parallel, several times in a row (Sun et al., 2024, Figure 10).

    The windows are those of `painters` with more than one layer. `loops` lists the numbers of repetitions (default: 1
    to the depth; in the paper 1 to 28 for 32 layers), and each number is a strategy, as in `loops=3`.

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
    """Run the M layers of each window in parallel, and multiply the mean of their updates by a gain from 1 to M.

    The windows are those of `painters` with more than one layer. With gain M, the result is the sum of the updates.

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
    """Return the plans of a family by name. Only `looped` uses `loops`, and only `repeat_blocks` uses `times`.

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
    """Draw random plans that take each of `depth` layers from one of `models`.

    The numbers of layers from two models differ by at most one (Freiberger et al., 2024, section 4.4). If `own_depth`,
    position p runs layer p of one of the models; otherwise the layers are also in random order. Plan n does not depend
    on `draws`.

    >>> for plan in assignments(["a", "b"], depth=4, draws=2, seed=0, own_depth=True):
    ...     print(plan)
    a:0 b:1 a:2 b:3
    a:0 b:1 b:2 a:3
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
