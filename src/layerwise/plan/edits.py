"""Edit plans: each function takes a plan and returns a new one.

`skip`, `swap`, `replace` and `without_branch` take layer numbers. They change every visit of the layer, including its
sublayers and visits inside groups and blocks. `reverse`, `repeat`, `parallel`, `loop`, `shuffle` and `move` take
half-open ranges of positions in `plan.stages`, which equal layer numbers in the identity plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace as changed

from layerwise.errors import PlanError
from layerwise.plan.checks import Sublayer, check_times, describe_value, layer_name, other_sublayer
from layerwise.plan.plan import Block, Group, Plan, Reduction, Stage, Visit

_MEAN = Reduction("mean")


def skip(plan: Plan | str, *layers: int) -> Plan:
    """Remove every visit of these layers, including their sublayers.

    Branches, groups and blocks that become empty are removed, too. Raises `PlanError` if a layer is not in the plan, or
    if no layer would remain.

    >>> skip(Plan.identity(32), 14, 15, 16, 17)
    Plan('0-13 18-31')
    """
    plan = Plan.parse(plan)
    _check_visited(plan, *layers)
    dropped = frozenset(layers)
    kept = map_visits(plan, lambda visit: None if visit.layer in dropped else visit)
    if kept is None:
        raise PlanError("this skips every layer of the plan; a plan must run at least one")
    return kept


def swap(plan: Plan | str, first: int, second: int) -> Plan:
    """Exchange two layers at every visit. A sublayer becomes the same sublayer of the other layer.

    >>> swap(Plan.identity(8), 3, 4)
    Plan('0-2 4 3 5-7')
    """
    plan = Plan.parse(plan)
    _check_visited(plan, first, second)
    return _renamed(plan, {first: second, second: first})


def replace(plan: Plan | str, old: int, new: int) -> Plan:
    """Run layer `new` wherever the plan runs layer `old`. A sublayer becomes the same sublayer of `new`.

    >>> replace(Plan.identity(8), 3, 4)
    Plan('0-2 4 4-7')
    """
    plan = Plan.parse(plan)
    _check_visited(plan, old)
    return _renamed(plan, {old: new})


def without_branch(plan: Plan | str, layer: int, sublayer: Sublayer) -> Plan:
    """Skip one sublayer, so that visits of the entire layer become visits of its other sublayer.

    Raises `PlanError` if the plan does not run the sublayer, or if no layer would remain.

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
        raise PlanError(f"cannot skip {layer_name(layer, sublayer)}, because the plan runs nothing else")
    if kept == plan:
        raise PlanError(
            f"the plan does not run {layer_name(layer, sublayer)}; it only runs {layer_name(layer, remaining)}"
        )
    return kept


def reverse(plan: Plan | str, start: int, stop: int) -> Plan:
    """Reverse the order of the stages from position `start` to `stop` (exclusive).

    >>> reverse(Plan.identity(32), 14, 18)
    Plan('0-13 17-14 18-31')
    """
    plan = Plan.parse(plan)
    before, window, after = _cut(plan, start, stop)
    return Plan((*before, *reversed(window), *after))


def shuffle(plan: Plan | str, start: int, stop: int, seed: int) -> Plan:
    """Shuffle the stages from position `start` to `stop` (exclusive) with `random.Random(seed)`.

    >>> shuffle(Plan.identity(8), 1, 7, seed=0)
    Plan('0 5 3-1 6 4 7')
    """
    plan = Plan.parse(plan)
    before, window, after = _cut(plan, start, stop)
    drawn = list(window)
    generator(seed).shuffle(drawn)
    return Plan((*before, *drawn, *after))


def move(plan: Plan | str, source: int, target: int) -> Plan:
    """Move the stage at position `source` to position `target`.

    >>> move(Plan.identity(6), 1, 4)
    Plan('0 2-4 1 5')
    """
    plan = Plan.parse(plan)
    _cut(plan, target, target + 1)
    before, window, after = _cut(plan, source, source + 1)
    rest = (*before, *after)
    return Plan((*rest[:target], *window, *rest[target:]))


def repeat(plan: Plan | str, start: int, stop: int, times: int, gain: float | None = None) -> Plan:
    """Run the stages from position `start` to `stop` (exclusive) `times` times. Several stages become a block.

    If `gain` is given, each repetition of the stages f returns `x + gain * (f(x) - x)` for its input x.

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
    """Run the stages from position `start` to `stop` (exclusive) in parallel, and merge their outputs.

    If there is only one stage and `merge` is `mean` or `sum`, the plan is returned unchanged.

    >>> parallel(Plan.identity(32), 14, 18)
    Plan('0-13 (14|15|16|17) 18-31')
    """
    plan = Plan.parse(plan)
    return loop(plan, start, stop, 1, merge)


def loop(plan: Plan | str, start: int, stop: int, times: int, merge: Reduction = _MEAN) -> Plan:
    """Run the stages from `start` to `stop` (exclusive) in parallel, `times` times in a row on the merged output.

    This is the “looped parallel” of Sun et al. (2024, arXiv 2407.09298).

    >>> loop(Plan.identity(32), 14, 18, times=3)
    Plan('0-13 (14|15|16|17)*3 18-31')
    """
    plan = Plan.parse(plan)
    before, window, after = _cut(plan, start, stop)
    group = Group(tuple(Plan((stage,)) for stage in window), merge)
    whole = window[0] if len(window) == 1 and merge.rule != "gain" else group
    return Plan((*before, *_times(whole, times), *after))


def generator(seed: int) -> random.Random:
    if type(seed) is not int:
        raise PlanError(f"seed must be an integer, got {describe_value(seed)}")
    return random.Random(seed)


def _cut(plan: Plan, start: int, stop: int) -> tuple[tuple[Stage, ...], tuple[Stage, ...], tuple[Stage, ...]]:
    count = len(plan.stages)
    for position in (start, stop):
        if type(position) is not int:
            raise PlanError(f"start and stop must be integers, got {describe_value(position)}")
    if not 0 <= start < stop <= count:
        raise PlanError(
            f"a window must satisfy 0 <= start < stop <= {count}, the number of stages, got {start} and {stop}"
        )
    return plan.stages[:start], plan.stages[start:stop], plan.stages[stop:]


def _times(stage: Stage, times: int) -> tuple[Stage]:
    check_times(times)
    return (changed(stage, times=stage.times * times),)


def _check_visited(plan: Plan, *layers: int) -> None:
    visited = plan.layers()
    for layer in layers:
        if type(layer) is not int:
            raise PlanError(
                f"layers must be integers passed one by one, such as 14, 15, 16, got {describe_value(layer)}"
            )
        if layer not in visited:
            raise PlanError(f"the plan does not run layer {layer}; it runs {Plan.of(sorted(visited))}")


def _renamed(plan: Plan, names: Mapping[int, int]) -> Plan:
    stages = (
        _map_stage(stage, lambda visit: changed(visit, layer=names.get(visit.layer, visit.layer)))
        for stage in plan.stages
    )
    return Plan(tuple(stage for stage in stages if stage is not None))


def map_visits(plan: Plan, onto: Callable[[Visit], Visit | None]) -> Plan | None:
    """Replace each visit `v` by `onto(v)`, or remove it if `onto(v)` is None. Return None if no visit remains."""
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
