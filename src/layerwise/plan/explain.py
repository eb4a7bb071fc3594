"""Explain plans in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from layerwise.plan.checks import SUBLAYERS, Sublayer, check_depth, other_sublayer, weight_type
from layerwise.plan.grammar import runs
from layerwise.plan.plan import Block, Group, Plan, Stage, Visit


def explain(plan: Plan | str, depth: int | None = None) -> str:
    """Describe a plan in words, one line per stage. If `depth` is given, also list the layers that never run.

    >>> print(explain(Plan.parse("0-13 (14|15|16|17)*3 21-18 (22):gain=0.5 [23-25]*2 26*4"), depth=32))
    layers 0 to 13, in order
    layers 14 to 17 in parallel, mean of the outputs, 3 times
    layers 21 to 18, backwards
    layer 22, with 0.5 x its update
    the block 23-25, 2 times
    layer 26, 4 times
    never: layers 27 to 31
    >>> print(explain(Plan.parse("0-2 3.mlp 4-5"), depth=6))
    layers 0 to 2, in order
    the mlp sublayer of layer 3
    layers 4, 5, in this order
    never: the attn sublayer of layer 3
    >>> print(explain(Plan.parse("a:0-3 b:4 b:6")))
    layers 0 to 3 of a, in order
    layers 4, 6 of b, in this order
    >>> print(explain(Plan.parse("Q4_0:0-2 Q8_0-noise1:3")))
    layers 0 to 2 at Q4_0, in order
    layer 3 with noise as large as the error of Q8_0
    """
    plan = Plan.parse(plan)
    lines = list(_lines(plan))
    if depth is not None:
        check_depth(depth)
        lines += _unused_lines(plan, depth)
    return "\n".join(lines)


def _unused_lines(plan: Plan, depth: int) -> Iterator[str]:
    run = {(step.layer, step.sublayer) for step in plan.steps()}
    unused = [layer for layer in range(depth) if layer not in plan.layers()]
    if unused:
        yield f"never: {named_layers(unused)}"
    for sublayer in SUBLAYERS:
        alone = [layer for layer in range(depth) if (layer, other_sublayer(sublayer)) in run]
        silent = [layer for layer in alone if run.isdisjoint({(layer, sublayer), (layer, None)})]
        if silent:
            yield f"never: {named_layers(silent, sublayer)}"


def _lines(plan: Plan) -> Iterator[str]:
    loose: list[Visit] = []
    for run in runs(plan.stages):
        stage = run[0]
        single = stage if len(run) == 1 and isinstance(stage, Visit) and stage.times == 1 else None
        if loose and (single is None or _kind(single) != _kind(loose[0])):
            yield _name_in_order(loose)
            loose = []
        if single is not None:
            loose.append(single)
        else:
            yield _range(run) if len(run) > 1 else _stage(stage)
    if loose:
        yield _name_in_order(loose)


def _kind(visit: Visit) -> tuple[Sublayer | None, str | None]:
    return visit.sublayer, visit.source


def _name_in_order(visits: list[Visit]) -> str:
    names = named_layers((visit.layer for visit in visits), *_kind(visits[0]))
    return names if len(visits) == 1 else f"{names}, in this order"


def _range(run: Sequence[Stage]) -> str:
    first, *_, last = (stage for stage in run if isinstance(stage, Visit))
    direction = "in order" if first.layer < last.layer else "backwards"
    source = _format_source(first.source)
    return f"{_format_sublayer(first.sublayer, several=True)}layers {first.layer} to {last.layer}{source}, {direction}"


def _stage(stage: Stage) -> str:
    match stage:
        case Visit():
            text = named_layers([stage.layer], *_kind(stage))
        case Block():
            text = f"the block {stage.plan}"
        case Group():
            text = _group(stage)
    return text if stage.times == 1 else f"{text}, {stage.times} times"


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
        steps = [step for branch in branches for step in branch.steps()]
        if len({(step.sublayer, step.source) for step in steps}) == 1:
            return named_layers((step.layer for step in steps), steps[0].sublayer, steps[0].source)
    return f"the branch{'es' * (len(branches) > 1)} {' and '.join(map(str, branches))}"


def named_layers(layers: Iterable[int], sublayer: Sublayer | None = None, source: str | None = None) -> str:
    """Name layers in words: `layer 5`, `layers 1, 3 to 6 of a` or `the attn sublayers of layers 5, 9`."""
    words = str(Plan.of(layers)).split()
    joined = ", ".join(word.replace("-", " to ") for word in words)
    several = joined != words[0]
    return f"{_format_sublayer(sublayer, several)}layer{'s' * several} {joined}{_format_source(source)}"


def _format_source(source: str | None) -> str:
    kind = weight_type(source)
    if kind is not None:
        return f" at {kind.type}" if kind.seed is None else f" with noise as large as the error of {kind.type}"
    return "" if source is None else f" of {source}"


def _format_sublayer(sublayer: Sublayer | None, several: bool) -> str:
    if sublayer is None:
        return ""
    return f"the {sublayer} sublayers of " if several else f"the {sublayer} sublayer of "
