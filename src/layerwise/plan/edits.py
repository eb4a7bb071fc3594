"""Edits: functions from a plan to a new plan, for every operation that the literature names.

Two ways of saying where. Edits that speak of a *layer* (`skip`, `swap`, `replace`, `without_branch`) take layer
indices and act on every visit of them, whole or of one half, inside groups and blocks too, and of whichever model: in a
plan over several, layer 3 is `a:3` and `b:3` alike, and a visit keeps the source it had. Edits that speak of a
*window* (`reverse`, `repeat`, `parallel`, `loop`, `shuffle`, `move`) take positions in `plan.stages` and count as
Python slices do: `start` is in, `stop` is out. On an unedited model the two agree, since stage k is layer k.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace as changed

from layerwise.errors import PlanError
from layerwise.plan.checks import Sublayer, check_times, named, other_sublayer, shown
from layerwise.plan.plan import Block, Group, Plan, Reduction, Stage, Visit

_MEAN = Reduction("mean")


def skip(plan: Plan | str, *layers: int) -> Plan:
    """Leave out every visit of these layers, their halves included (one half alone: `without_branch`).

    A branch, block or group with no layer left goes with them, so a merge is taken over the branches that
    remain. Raises `PlanError` if a layer is not in the plan, or if nothing would remain.

    >>> skip(Plan.identity(32), 14, 15, 16, 17)
    Plan('0-13 18-31')
    """
    plan = Plan.parse(plan)
    _check_visited(plan, *layers)
    dropped = frozenset(layers)
    kept = map_visits(plan, lambda visit: None if visit.layer in dropped else visit)
    if kept is None:
        raise PlanError("that skips every layer of the plan; a plan runs at least one")
    return kept


def swap(plan: Plan | str, first: int, second: int) -> Plan:
    """Exchange two layers wherever either is visited; doing it twice gives the plan back.

    A half becomes the same half of the other layer.

    >>> swap(Plan.identity(8), 3, 4)
    Plan('0-2 4 3 5-7')
    """
    plan = Plan.parse(plan)
    _check_visited(plan, first, second)
    return _renamed(plan, {first: second, second: first})


def replace(plan: Plan | str, old: int, new: int) -> Plan:
    """Run layer `new` wherever the plan runs layer `old`, and a half of it for the same half.

    >>> replace(Plan.identity(8), 3, 4)
    Plan('0-2 4 4-7')
    """
    plan = Plan.parse(plan)
    _check_visited(plan, old)
    return _renamed(plan, {old: new})


def without_branch(plan: Plan | str, layer: int, sublayer: Sublayer) -> Plan:
    """Silence one branch of a layer: every visit of the whole layer becomes one of its other half.

    Visits of that half alone are left out, as `skip` leaves out layers; those of the other half stay. Raises
    `PlanError` if the plan does not run the branch, or if nothing would remain.

    >>> without_branch(Plan.identity(30), 12, "attn")
    Plan('0-11 12.mlp 13-29')
    """
    plan = Plan.parse(plan)
    remaining = other_sublayer(sublayer)

    def silenced(visit: Visit) -> Visit | None:
        if visit.layer != layer or visit.sublayer == remaining:
            return visit
        return changed(visit, sublayer=remaining) if visit.sublayer is None else None

    _check_visited(plan, layer)
    kept = map_visits(plan, silenced)
    if kept is None:
        raise PlanError(f"{named(layer, sublayer)} is all that the plan runs; a plan runs at least one layer")
    if kept == plan:
        raise PlanError(
            f"the plan does not run {named(layer, sublayer)}; of layer {layer} it runs the other half alone"
        )
    return kept


def reverse(plan: Plan | str, start: int, stop: int) -> Plan:
    """The stages of a window in descending order. Each stage stays as it is.

    >>> reverse(Plan.identity(32), 14, 18)
    Plan('0-13 17-14 18-31')
    """
    plan = Plan.parse(plan)
    before, window, after = _cut(plan, start, stop)
    return Plan((*before, *reversed(window), *after))


def shuffle(plan: Plan | str, start: int, stop: int, seed: int) -> Plan:
    """The stages of a window in a uniformly random order, drawn by `random.Random(seed)`.

    >>> shuffle(Plan.identity(8), 1, 7, seed=0)
    Plan('0 5 3-1 6 4 7')
    """
    plan = Plan.parse(plan)
    before, window, after = _cut(plan, start, stop)
    drawn = list(window)
    generator(seed).shuffle(drawn)
    return Plan((*before, *drawn, *after))


def move(plan: Plan | str, source: int, target: int) -> Plan:
    """Take the stage at position `source` out and put it back so that it stands at position `target`.

    >>> move(Plan.identity(6), 1, 4)
    Plan('0 2-4 1 5')
    """
    plan = Plan.parse(plan)
    _cut(plan, target, target + 1)
    before, window, after = _cut(plan, source, source + 1)
    rest = (*before, *after)
    return Plan((*rest[:target], *window, *rest[target:]))


def repeat(plan: Plan | str, start: int, stop: int, times: int, gain: float | None = None) -> Plan:
    """Run a window `times` times, as a block; a window of one stage repeats that stage.

    With a `gain` each pass adds that share of the window's update, `x + gain * (window(x) - x)`.

    >>> repeat(Plan.identity(80), 45, 52, times=2)
    Plan('0-44 [45-51]*2 52-79')
    >>> repeat(Plan.identity(8), 3, 4, times=2)
    Plan('0-2 3*2 4-7')
    >>> repeat(Plan.identity(30), 12, 16, times=2, gain=0.5)
    Plan('0-11 (12-15):gain=0.5*2 16-29')
    """
    plan = Plan.parse(plan)
    before, window, after = _cut(plan, start, stop)
    whole: Stage = window[0] if len(window) == 1 else Block(Plan(window))
    if gain is not None:
        whole = Group((Plan(window),), Reduction("gain", gain))
    return Plan((*before, *_times(whole, times), *after))


def parallel(plan: Plan | str, start: int, stop: int, merge: Reduction = _MEAN) -> Plan:
    """Let the stages of a window read the same state, and merge their outputs.

    A window of one stage is left as it is under `mean` and `sum`, where a group of one changes nothing.

    >>> parallel(Plan.identity(32), 14, 18)
    Plan('0-13 (14|15|16|17) 18-31')
    """
    plan = Plan.parse(plan)
    return loop(plan, start, stop, 1, merge)


def loop(plan: Plan | str, start: int, stop: int, times: int, merge: Reduction = _MEAN) -> Plan:
    """`parallel`, with the merged state fed back, `times` times in all: the Painters' looped parallel.

    >>> loop(Plan.identity(32), 14, 18, times=3)
    Plan('0-13 (14|15|16|17)*3 18-31')
    """
    plan = Plan.parse(plan)
    before, window, after = _cut(plan, start, stop)
    group = Group(tuple(Plan((stage,)) for stage in window), merge)
    whole = window[0] if len(window) == 1 and merge.rule != "gain" else group
    return Plan((*before, *_times(whole, times), *after))


def generator(seed: int) -> random.Random:
    """The source of chance that a seed stands for; the same draws on every machine."""
    if type(seed) is not int:
        raise PlanError(f"a seed is a whole number, not {shown(seed)}")
    return random.Random(seed)


def _cut(plan: Plan, start: int, stop: int) -> tuple[tuple[Stage, ...], tuple[Stage, ...], tuple[Stage, ...]]:
    count = len(plan.stages)
    for position in (start, stop):
        if type(position) is not int:
            raise PlanError(f"a window is given by whole numbers, start and stop, not {shown(position)}")
    if not 0 <= start < stop <= count:
        raise PlanError(
            f"a plan of {count} stages has no window from position {start} up to, not including, {stop}: "
            f"use 0 <= start < stop <= {count}"
        )
    return plan.stages[:start], plan.stages[start:stop], plan.stages[stop:]


def _times(stage: Stage, times: int) -> tuple[Stage]:
    check_times(times)
    return (changed(stage, times=stage.times * times),)


def _check_visited(plan: Plan, *layers: int) -> None:
    visited = plan.layers()
    for layer in layers:
        if type(layer) is not int:
            raise PlanError(f"layers are named one by one, by whole numbers, as in 14, 15, 16; found {shown(layer)}")
        if layer not in visited:
            raise PlanError(f"the plan does not run layer {layer}; the layers it runs: {Plan.of(sorted(visited))}")


def _renamed(plan: Plan, names: Mapping[int, int]) -> Plan:
    stages = (
        _map_stage(stage, lambda visit: changed(visit, layer=names.get(visit.layer, visit.layer)))
        for stage in plan.stages
    )
    return Plan(tuple(stage for stage in stages if stage is not None))


def map_visits(plan: Plan, onto: Callable[[Visit], Visit | None]) -> Plan | None:
    """Return the plan with each visit `v` replaced by `onto(v)`, or dropped if `None`; `None` if nothing is left."""
    stages = (_map_stage(stage, onto) for stage in plan.stages)
    kept = tuple(stage for stage in stages if stage is not None)
    return Plan(kept) if kept else None


def _map_stage(stage: Stage, onto: Callable[[Visit], Visit | None]) -> Stage | None:
    match stage:
        case Visit():
            return onto(stage)
        case Block():
            inside = map_visits(stage.plan, onto)
            return None if inside is None else changed(stage, plan=inside)
        case Group():
            branches = (map_visits(branch, onto) for branch in stage.branches)
            kept = tuple(branch for branch in branches if branch is not None)
            return changed(stage, branches=kept) if kept else None
