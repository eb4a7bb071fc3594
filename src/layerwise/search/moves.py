"""Moves from a plan to adjacent plans: pure functions of plans, without a model.

    drop, halves        skip a layer, or its attention or MLP (FinerCut, BlockPruner); in an exchange another comes back
    bits                quantize a layer to a GGUF type (`layerwise.search.bits`)
    repeat, damp        run up to four layers twice; damped, each pass with a part of its update
    parallel, reorder   give two neighbors the same state and add both updates; or swap them

`repeat` and `damp` raise the cost. Other models may provide layers. Moves act on unrolled stages, except for groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal, get_args

from layerwise.errors import OptionError, near_matches
from layerwise.plan import Plan
from layerwise.plan.checks import SUBLAYERS, other_sublayer
from layerwise.plan.plan import Block, Group, Reduction, Stage, Visit

Move = Literal["drop", "halves", "repeat", "damp", "parallel", "reorder", "bits"]
MOVES: tuple[Move, ...] = get_args(Move)
CHEAPER: tuple[Move, ...] = ("drop", "halves")
"""The moves that make a plan cheaper, one step at a time."""

BITS: Move = "bits"
BESIDE_BITS: tuple[Move, ...] = ("drop", "repeat", "reorder")
"""The moves that a search for types may make as well."""

LONGEST_REPEAT = 4
"""Layers of the longest run that `repeat` repeats, beside moves that leave layers out."""

GAINS = (0.25, 0.5)
"""The shares of its update that each pass of a run has under `damp`."""


def check_moves(names: Sequence[str]) -> tuple[Move, ...]:
    """The moves of these names, each once. Raises `OptionError` for one that there is not, and for none."""
    for name in names:
        if name not in MOVES:
            raise OptionError(f"there is no move {name[:40]!r}; {near_matches(name, MOVES)}")
    if not names:
        raise OptionError(f"a search needs moves: name some of {', '.join(MOVES)}")
    return tuple(move for move in MOVES if move in names)


def stages(plan: Plan) -> tuple[Stage, ...]:
    """The stages of a plan, unrolled: visits and blocks that run several times, and the insides of blocks.

    >>> [str(Plan((stage,))) for stage in stages(Plan.parse("0*2 [1 2]*2 (3|4)"))]
    ['0', '0', '1', '2', '1', '2', '(3|4)']
    """
    unrolled: list[Stage] = []
    for stage in plan.stages:
        match stage:
            case Visit(times=times):
                unrolled += [replace(stage, times=1)] * times
            case Block(plan=inside, times=times):
                unrolled += stages(inside) * times
            case Group():
                unrolled.append(stage)
    return tuple(unrolled)


def cheaper(plan: Plan, moves: Sequence[Move]) -> list[Plan]:
    """Every plan that one of the moves makes cheaper by one step.

    >>> [str(each) for each in cheaper(Plan.parse("0-2"), ("drop",))]
    ['1 2', '0 2', '0 1']
    """
    made = [each for move in CHEAPER if move in moves for each in _MOVES[move](stages(plan))]
    return _distinct(plan, made)


def neighbours(
    plan: Plan, moves: Sequence[Move], depth: int, sources: Sequence[str] = (), longest: int = LONGEST_REPEAT
) -> list[Plan]:
    """Return every plan one exchange away: a skipped layer is swapped in, or another move is made.

    At most `longest` layers run twice.

    >>> [str(each) for each in neighbours(Plan.parse("0 2"), ("drop",), 3)]
    ['1 2', '0 1']
    >>> [str(each) for each in neighbours(Plan.parse("0 b:1"), (), 2, ["b"])]
    ['b:0 b:1', '0 1']
    """
    now = stages(plan)
    made: list[tuple[Stage, ...]] = []
    for smaller in (each for move in CHEAPER if move in moves for each in _MOVES[move](now)):
        made += restored(smaller, depth, halves="halves" in moves)
    if "repeat" in moves:
        made += _repeated(now, longest, (1.0,))
    if "damp" in moves:
        made += _repeated(now, longest, GAINS)
    for move in ("parallel", "reorder"):
        if move in moves:
            made += _MOVES[move](now)
    made += from_sources(now, sources)
    return _distinct(plan, made)


def from_sources(now: Sequence[Stage], sources: Sequence[str]) -> Iterator[tuple[Stage, ...]]:
    models = (None, *sources)
    for index, stage in enumerate(now):
        if isinstance(stage, Visit) and stage.source in models:
            for source in models:
                if source != stage.source:
                    yield (*now[:index], replace(stage, source=source), *now[index + 1 :])


def restored(now: Sequence[Stage], depth: int, *, halves: bool) -> Iterator[tuple[Stage, ...]]:
    """The stages with one layer back that is not there, where the trained order has it; with `halves` also a half."""
    present = _layers(now)
    for layer in range(depth):
        if layer in present:
            continue
        at = next((index for index, stage in enumerate(now) if min(_layers([stage])) > layer), len(now))
        for sublayer in (None, *SUBLAYERS) if halves else (None,):
            yield (*now[:at], Visit(layer, sublayer=sublayer), *now[at:])
    for index, stage in enumerate(now):
        if isinstance(stage, Visit) and stage.sublayer is not None:
            yield (*now[:index], replace(stage, sublayer=None), *now[index + 1 :])


def _layers(now: Sequence[Stage]) -> frozenset[int]:
    return Plan(tuple(now)).layers()


def _drop(now: Sequence[Stage]) -> Iterator[tuple[Stage, ...]]:
    for index in range(len(now)):
        yield (*now[:index], *now[index + 1 :])


def _halves(now: Sequence[Stage]) -> Iterator[tuple[Stage, ...]]:
    for index, stage in enumerate(now):
        if isinstance(stage, Visit) and stage.sublayer is None and stage.source is None:
            for sublayer in SUBLAYERS:
                yield (*now[:index], replace(stage, sublayer=other_sublayer(sublayer)), *now[index + 1 :])


def _repeated(now: Sequence[Stage], longest: int, gains: Sequence[float]) -> Iterator[tuple[Stage, ...]]:
    for length in range(1, min(longest, len(now)) + 1):
        for start in range(len(now) - length + 1):
            run = tuple(now[start : start + length])
            if not all(isinstance(stage, Visit) for stage in run):
                continue
            for gain in gains:
                twice = (*run, *run) if gain == 1 else (Group((Plan(run),), Reduction("gain", gain), 2),)
                yield (*now[:start], *twice, *now[start + length :])


def _parallel(now: Sequence[Stage]) -> Iterator[tuple[Stage, ...]]:
    for index, pair in enumerate(pairwise(now)):
        if all(isinstance(stage, Visit) for stage in pair):
            group = Group(tuple(Plan((stage,)) for stage in pair), Reduction("sum"))
            yield (*now[:index], group, *now[index + 2 :])


def _reorder(now: Sequence[Stage]) -> Iterator[tuple[Stage, ...]]:
    for index, (first, second) in enumerate(pairwise(now)):
        yield (*now[:index], second, first, *now[index + 2 :])


_MOVES: dict[str, Callable[[Sequence[Stage]], Iterator[tuple[Stage, ...]]]] = {
    "drop": _drop,
    "halves": _halves,
    "parallel": _parallel,
    "reorder": _reorder,
}


def _distinct(plan: Plan, made: Sequence[tuple[Stage, ...]]) -> list[Plan]:
    plans = dict.fromkeys(Plan(each) for each in made if each)
    plans.pop(Plan(stages(plan)), None)
    return list(plans)
