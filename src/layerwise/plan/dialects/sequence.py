"""Convert plans to sequences of entire layers (for mergekit) and to tensor types (for llama-quantize)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NoReturn, TypeAlias

from layerwise.errors import PlanError
from layerwise.plan.checks import quantized_layers, refuse_quantized_layers
from layerwise.plan.grammar import runs, write
from layerwise.plan.plan import Block, Group, Plan, Stage, Step, Visit

_FORM = "mergekit's YAML"

Gains: TypeAlias = tuple[float, float]
"""Factors of the attention update and the MLP update of a layer."""


def join_sublayers(plan: Plan | str) -> tuple[Plan, tuple[Gains, ...]]:
    """Join the two sublayers of each layer into one visit. Return the new plan and the gains of the sublayers.

    If the plan has stages other than layers and such pairs, it is returned unchanged, without gains.

    >>> join_sublayers("0 (1.attn):gain=0.5 (1.mlp):gain=0 2")
    (Plan('0-2'), ((1.0, 1.0), (0.5, 0.0), (1.0, 1.0)))
    >>> join_sublayers("0 1.attn (2.mlp):gain=0.5")
    (Plan('0 1.attn (2.mlp):gain=0.5'), ())
    """
    plan = Plan.parse(plan)
    steps, visits, gains = list(plan.steps()), list[Visit](), list[Gains]()
    while steps:
        attention, *rest = steps
        mlp = rest[0] if attention.sublayer == "attn" and rest and rest[0].sublayer == "mlp" else attention
        one, other = _gain(attention), _gain(mlp)
        whole = mlp is attention and attention.sublayer is None and not attention.closes
        same = mlp is not attention and (mlp.layer, mlp.source) == (attention.layer, attention.source)
        if one is None or other is None or not (whole or same):
            return plan, ()
        visits.append(Visit(attention.layer, source=attention.source))
        gains.append((one, other))
        steps = rest[1:] if same else rest
    return Plan(tuple(visits)), tuple(gains)


def _gain(step: Step) -> float | None:
    if not step.opens and not step.closes:
        return 1.0
    close = step.closes[0] if step.opens == len(step.closes) == 1 else None
    return None if close is None else close.weight(1)


def sequential(plan: Plan | str) -> Plan:
    """Expand repeats and blocks into a sequence of single visits of entire layers.

    Raises `PlanError` for groups, gains, sublayers and quantized layers, which mergekit cannot express.

    >>> sequential("0-2 [3 4]*2 5*2")
    Plan('0-4 3-5 5')
    >>> sequential("0-2 [3 (4|5)]*2 6")
    Traceback (most recent call last):
    layerwise.errors.PlanError: stage 2 of the plan, [3 (4|5)]*2, runs layers in parallel, but mergekit's YAML only \
supports layers in sequence; write its layers in sequence, as in 3-5
      0-2 [3 (4|5)]*2 6
          ^
    """
    plan = Plan.parse(plan)
    refuse_quantized_layers(plan, f"write {_FORM}")
    position = 0
    for number, run in enumerate(runs(plan.stages), start=1):
        reason = next(_obstacles(run[0]), None)
        if reason is not None:
            _refuse(plan, number, position, run, reason)
        position += len(write(Plan(run))) + 1
    return Plan(tuple(Visit(step.layer, source=step.source) for step in plan.steps()))


def ascending_runs(plan: Plan, gains: Sequence[Gains] = ()) -> list[tuple[str | None, int, int, Gains]]:
    """Split a plan into runs of ascending layers with equal model and gains: (model, start, stop, gains).

    >>> [run[:3] for run in ascending_runs(sequential("0-2 2 5-4 a:5 a:6"))]
    [(None, 0, 3), (None, 2, 3), (None, 5, 6), (None, 4, 5), ('a', 5, 7)]
    """
    steps = plan.steps()
    visits = list(zip(steps, gains or [(1.0, 1.0)] * len(steps), strict=True))
    breaks = [at for at, (here, after) in enumerate(pairwise(visits), 1) if not _follows(here, after)]
    return [
        (steps[at].source, steps[at].layer, steps[stop - 1].layer + 1, visits[at][1])
        for at, stop in pairwise([0, *breaks, len(steps)])
    ]


def _follows(here: tuple[Step, Gains], after: tuple[Step, Gains]) -> bool:
    (one, gains), (other, own) = here, after
    return (other.source, other.layer, own) == (one.source, one.layer + 1, gains)


def _obstacles(stage: Stage) -> Iterator[str]:
    match stage:
        case Visit():
            if stage.sublayer is not None:
                yield f"runs only the {stage.sublayer} sublayer"
        case Block():
            for inner in stage.plan.stages:
                yield from _obstacles(inner)
        case Group():
            yield "runs layers in parallel" if len(stage.branches) > 1 else "scales the update of a layer"


def _refuse(plan: Plan, number: int, position: int, run: tuple[Stage, ...], reason: str) -> NoReturn:
    layers = dict.fromkeys((step.source, step.layer) for step in Plan(run).steps())
    instead = Plan(tuple(Visit(layer, source=source) for source, layer in layers))
    target = "its layers in sequence" if len(layers) > 1 else "the entire layer"
    raise PlanError(
        f"stage {number} of the plan, {Plan(run)}, {reason}, but {_FORM} only supports layers in sequence; write "
        f"{target}, as in {instead}",
        text=str(plan),
        position=position,
    )


FORM = "a file of tensor types"


def write_tensor_types(plan: Plan | str, depth: int | None = None) -> str:
    r"""Return one `regex=type` line per quantized layer, for `llama-quantize --tensor-type-file`.

    Raises `PlanError` unless the plan runs all layers in order, at least one of them quantized, and none with noise.

    >>> write_tensor_types("0 Q4_0:1 Q8_0:2-3").splitlines()
    ['blk\\.1\\.=q4_0', 'blk\\.2\\.=q8_0', 'blk\\.3\\.=q8_0']
    """
    plan = Plan.parse(plan)
    steps = plan.steps()
    as_trained = Plan.identity(len(steps) if depth is None else depth)
    whole = not any(step.sublayer is not None or step.opens or step.closes for step in steps)
    if plan.sources() or not whole or plan.order() != as_trained.order():
        raise PlanError(
            f"{FORM} requires a plan with all layers in their original order, {as_trained}; to change the order, save "
            "a GGUF file under the plan (layerwise save)"
        )
    types = quantized_layers(plan)
    noise = next((layer for layer, kind in types if kind.seed is not None), None)
    if noise is not None or not types:
        raise PlanError(
            f"{FORM} requires a quantized layer, such as Q4_0:0"
            + ("" if noise is None else f", but the plan adds noise to layer {noise}")
        )
    return "\n".join(rf"blk\.{layer}\.={kind.type.lower()}" for layer, kind in types)
