"""A plan in words, one line for each thing it does, for people who do not read the plan language yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from layerwise.plan.grammar import runs
from layerwise.plan.limits import check_depth
from layerwise.plan.plan import Block, Group, Plan, Stage, Visit


def explain(plan: Plan, depth: int | None = None) -> str:
    """What the plan does, in order; told the depth of the model, also which of its layers never run.

    >>> print(explain(Plan.parse("0-13 (14|15|16|17)*3 21-18 (22):gain=0.5 [23-25]*2 26*4"), depth=32))
    layers 0 to 13, in order
    layers 14 to 17 in parallel, mean of the outputs, 3 times
    layers 21 to 18, backwards
    layer 22, with 0.5 x its update
    the block 23-25, 2 times
    layer 26, 4 times
    never: layers 27 to 31
    """
    lines = list(_lines(plan))
    if depth is not None:
        check_depth(depth)
        unused = [layer for layer in range(depth) if layer not in plan.layers()]
        lines += [f"never: {_named(unused)}"] if unused else []
    return "\n".join(lines)


def _lines(plan: Plan) -> Iterator[str]:
    """A line for each range and each stage; single visits that make no range share one."""
    loose: list[int] = []
    for run in runs(plan.stages):
        if len(run) == 1 and isinstance(run[0], Visit) and run[0].times == 1:
            loose.append(run[0].layer)
            continue
        if loose:
            yield _in_turn(loose)
            loose = []
        yield _range(run[0], run[-1]) if len(run) > 1 else _stage(run[0])
    if loose:
        yield _in_turn(loose)


def _in_turn(layers: list[int]) -> str:
    return _named(layers) if len(layers) == 1 else f"{_named(layers)}, in this order"


def _range(first: Stage, last: Stage) -> str:
    assert isinstance(first, Visit)
    assert isinstance(last, Visit)
    direction = "in order" if first.layer < last.layer else "backwards"
    return f"layers {first.layer} to {last.layer}, {direction}"


def _stage(stage: Stage) -> str:
    match stage:
        case Visit():
            said = f"layer {stage.layer}"
        case Block():
            said = f"the block {stage.plan}"
        case Group():
            said = _group(stage)
    return said if stage.times == 1 else f"{said}, {stage.times} times"


def _group(group: Group) -> str:
    branches, gain = _branches(group.branches), group.merge.gain
    if len(group.branches) == 1:
        return branches if gain is None else f"{branches}, with {gain:g} x its update"
    if gain is not None:
        return f"{branches} in parallel, {gain:g} x the mean of the updates"
    merge = "sum of the updates" if group.merge.rule == "sum" else "mean of the outputs"
    return f"{branches} in parallel, {merge}"


def _branches(branches: tuple[Plan, ...]) -> str:
    if all(branch.evaluations == 1 and branch.nesting == 0 for branch in branches):
        return _named(layer for branch in branches for layer in branch.order())
    return f"the branch{'es' * (len(branches) > 1)} {' and '.join(map(str, branches))}"


def _named(layers: Iterable[int]) -> str:
    """`layer 5`, `layers 5, 9`, `layers 1, 3 to 6`: ranges as the plan language makes them."""
    words = str(Plan.of(layers)).split()
    joined = ", ".join(word.replace("-", " to ") for word in words)
    return f"layer{'s' * (joined != words[0])} {joined}"
