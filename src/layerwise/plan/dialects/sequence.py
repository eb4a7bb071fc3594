"""Plans that run one whole layer after another: all that a list of layers, or of slices of layers, can say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NoReturn

from layerwise.errors import PlanError
from layerwise.plan.grammar import runs, write
from layerwise.plan.lowering import Step
from layerwise.plan.plan import Block, Group, Plan, Stage, Visit
from layerwise.plan.quantised import refuse_quantised_layers

_FORM = "mergekit's YAML"


def sequential(plan: Plan | str) -> Plan:
    """The plan with its repeats and blocks spelled out: one visit of a whole layer after another.

    Raises `PlanError` that names the stage for a plan with groups, gains, halves of layers or quantized layers, which
    mergekit's YAML cannot express.

    >>> sequential("0-2 [3 4]*2 5*2")
    Plan('0-4 3-5 5')
    >>> sequential("0-2 [3 (4|5)]*2 6")
    Traceback (most recent call last):
    layerwise.errors.PlanError: stage 2 of the plan, [3 (4|5)]*2, runs layers side by side, and mergekit's YAML says \
only which layers run one after another: write its layers in turn, as in 3-5
      0-2 [3 (4|5)]*2 6
          ^
    """
    plan = Plan.parse(plan)
    refuse_quantised_layers(plan, f"write {_FORM}")
    position = 0
    for number, run in enumerate(runs(plan.stages), start=1):
        reason = next(_obstacles(run[0]), None)
        if reason is not None:
            _refuse(plan, number, position, run, reason)
        position += len(write(Plan(run))) + 1
    return Plan(tuple(Visit(step.layer, source=step.source) for step in plan.steps()))


def ascending_runs(plan: Plan) -> list[tuple[str | None, int, int]]:
    """The longest runs of layers that go up by one, of one model each: its name, the first layer, and behind the last.

    `plan` is one that `sequential` returns.

    >>> ascending_runs(sequential("0-2 2 5-4 a:5 a:6"))
    [(None, 0, 3), (None, 2, 3), (None, 5, 6), (None, 4, 5), ('a', 5, 7)]
    """
    steps = plan.steps()
    starts = [0, *(at for at, (here, after) in enumerate(pairwise(steps), 1) if not _follows(here, after)), len(steps)]
    return [(steps[at].source, steps[at].layer, steps[stop - 1].layer + 1) for at, stop in pairwise(starts)]


def _follows(here: Step, after: Step) -> bool:
    return (after.source, after.layer) == (here.source, here.layer + 1)


def _obstacles(stage: Stage) -> Iterator[str]:
    match stage:
        case Visit():
            if stage.sublayer is not None:
                yield f"runs the {stage.sublayer} half of a layer"
        case Block():
            for inner in stage.plan.stages:
                yield from _obstacles(inner)
        case Group():
            yield "runs layers side by side" if len(stage.branches) > 1 else "scales the update of a layer"


def _refuse(plan: Plan, number: int, position: int, run: tuple[Stage, ...], reason: str) -> NoReturn:
    layers = dict.fromkeys((step.source, step.layer) for step in Plan(run).steps())
    instead = Plan(tuple(Visit(layer, source=source) for source, layer in layers))
    several = "its layers in turn" if len(layers) > 1 else "the whole layer"
    raise PlanError(
        f"stage {number} of the plan, {Plan(run)}, {reason}, and {_FORM} says only which layers run one after another: "
        f"write {several}, as in {instead}",
        text=str(plan),
        position=position,
    )
