"""Edits that change a plan by one step. They are pure functions of plans and need no model.

    drop        skip a layer
    sublayers   skip the attention or the MLP of a layer (FinerCut, BlockPruner)
    bits        quantize a layer to a GGUF type (`layerwise.search.bits`)
    repeat      run up to four consecutive layers twice
    damp        the same as `repeat`, with each update scaled down
    parallel    run two adjacent layers on the same input and add both updates
    reorder     swap two adjacent layers

Edits do not change the inside of a group.
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

Edit = Literal["drop", "sublayers", "repeat", "damp", "parallel", "reorder", "bits"]
EDITS: tuple[Edit, ...] = get_args(Edit)
CHEAPER_EDITS: tuple[Edit, ...] = ("drop", "sublayers")
"""Edits that make a plan cheaper."""

BITS: Edit = "bits"
EDITS_WITH_BITS: tuple[Edit, ...] = ("drop", "repeat", "reorder")
"""Edits that can be combined with `bits`."""

MAX_REPEAT = 4
"""Default maximum number of consecutive layers that `repeat` runs twice."""

GAINS = (0.25, 0.5)
"""Factors by which `damp` scales updates."""


def check_edits(names: Sequence[str]) -> tuple[Edit, ...]:
    """Return the named edits without duplicates, in the order of `EDITS`.

    Raises:
        OptionError: If a name is unknown, or if there is none.
    """
    for name in names:
        if name not in EDITS:
            raise OptionError(f"unknown edit {name[:40]!r}; {near_matches(name, EDITS)}")
    if not names:
        raise OptionError(f"edits must not be empty. Pass some of {', '.join(EDITS)}.")
    return tuple(edit for edit in EDITS if edit in names)


def unroll(plan: Plan) -> tuple[Stage, ...]:
    """Return the stages of a plan, with repeats and blocks expanded.

    >>> [str(Plan((stage,))) for stage in unroll(Plan.parse("0*2 [1 2]*2 (3|4)"))]
    ['0', '0', '1', '2', '1', '2', '(3|4)']
    """
    unrolled: list[Stage] = []
    for stage in plan.stages:
        match stage:
            case Visit(times=times):
                unrolled += [replace(stage, times=1)] * times
            case Block(plan=inside, times=times):
                unrolled += unroll(inside) * times
            case Group():
                unrolled.append(stage)
    return tuple(unrolled)


def list_cheaper(plan: Plan, edits: Sequence[Edit]) -> list[Plan]:
    """Return every plan that results from one of those `edits` that make a plan cheaper (`CHEAPER_EDITS`).

    >>> [str(each) for each in list_cheaper(Plan.parse("0-2"), ("drop",))]
    ['1 2', '0 2', '0 1']
    """
    made = [each for edit in CHEAPER_EDITS if edit in edits for each in _EDITS[edit](unroll(plan))]
    return _distinct(plan, made)


def list_neighbors(
    plan: Plan, edits: Sequence[Edit], depth: int, sources: Sequence[str] = (), max_repeat: int = MAX_REPEAT
) -> list[Plan]:
    """Return every plan that results from one exchange (skip a layer and restore another) or one other edit.

    >>> [str(each) for each in list_neighbors(Plan.parse("0 2"), ("drop",), 3)]
    ['1 2', '0 1']
    >>> [str(each) for each in list_neighbors(Plan.parse("0 b:1"), (), 2, ["b"])]
    ['b:0 b:1', '0 1']
    """
    now = unroll(plan)
    made: list[tuple[Stage, ...]] = []
    for smaller in (each for edit in CHEAPER_EDITS if edit in edits for each in _EDITS[edit](now)):
        made += restore_layers(smaller, depth, sublayers="sublayers" in edits)
    if "repeat" in edits:
        made += _repeated(now, max_repeat, (1.0,))
    if "damp" in edits:
        made += _repeated(now, max_repeat, GAINS)
    for edit in ("parallel", "reorder"):
        if edit in edits:
            made += _EDITS[edit](now)
    made += swap_sources(now, sources)
    return _distinct(plan, made)


def swap_sources(now: Sequence[Stage], sources: Sequence[str]) -> Iterator[tuple[Stage, ...]]:
    models = (None, *sources)
    for index, stage in enumerate(now):
        if isinstance(stage, Visit) and stage.source in models:
            for source in models:
                if source != stage.source:
                    yield (*now[:index], replace(stage, source=source), *now[index + 1 :])


def restore_layers(now: Sequence[Stage], depth: int, *, sublayers: bool) -> Iterator[tuple[Stage, ...]]:
    """Yield the stages with one skipped layer or sublayer restored at its place in layer order.

    If `sublayers`, each skipped layer is also restored only in part: its attention, or its MLP.
    """
    present = _layers(now)
    for layer in range(depth):
        if layer in present:
            continue
        at = next((index for index, stage in enumerate(now) if min(_layers([stage])) > layer), len(now))
        for sublayer in (None, *SUBLAYERS) if sublayers else (None,):
            yield (*now[:at], Visit(layer, sublayer=sublayer), *now[at:])
    for index, stage in enumerate(now):
        if isinstance(stage, Visit) and stage.sublayer is not None:
            yield (*now[:index], replace(stage, sublayer=None), *now[index + 1 :])


def _layers(now: Sequence[Stage]) -> frozenset[int]:
    return Plan(tuple(now)).layers()


def _drop(now: Sequence[Stage]) -> Iterator[tuple[Stage, ...]]:
    for index in range(len(now)):
        yield (*now[:index], *now[index + 1 :])


def _skip_sublayers(now: Sequence[Stage]) -> Iterator[tuple[Stage, ...]]:
    for index, stage in enumerate(now):
        if isinstance(stage, Visit) and stage.sublayer is None and stage.source is None:
            for sublayer in SUBLAYERS:
                yield (*now[:index], replace(stage, sublayer=other_sublayer(sublayer)), *now[index + 1 :])


def _repeated(now: Sequence[Stage], max_repeat: int, gains: Sequence[float]) -> Iterator[tuple[Stage, ...]]:
    for length in range(1, min(max_repeat, len(now)) + 1):
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


_EDITS: dict[str, Callable[[Sequence[Stage]], Iterator[tuple[Stage, ...]]]] = {
    "drop": _drop,
    "sublayers": _skip_sublayers,
    "parallel": _parallel,
    "reorder": _reorder,
}


def _distinct(plan: Plan, made: Sequence[tuple[Stage, ...]]) -> list[Plan]:
    plans = dict.fromkeys(Plan(each) for each in made if each)
    plans.pop(Plan(unroll(plan)), None)
    return list(plans)
