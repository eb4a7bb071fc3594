"""The layers of a phase as text, `0-3 8`, in the ranges of the plan language; `none` and `all` are words for two of
them."""

from __future__ import annotations

from layerwise.errors import PlanError
from layerwise.plan.checks import shown
from layerwise.plan.plan import Plan, Visit

NONE = "none"
ALL = "all"


def read_layers(text: object, what: str, depth: int) -> tuple[int, ...]:
    """The layers that a text names, ascending; a single layer may be a number. `what` begins the message of an error.

    >>> read_layers("0-2 8", "trains", depth=12)
    (0, 1, 2, 8)
    >>> read_layers("3 2", "trains", depth=12)
    Traceback (most recent call last):
    layerwise.errors.PlanError: trains: layers are named once each and in ascending order, as in 0-3 8; found 3 2
    """
    if type(text) is int and text >= 0:
        return (text,)
    if type(text) is not str:
        raise PlanError(f"{what}: layers are written as text such as 0-3 8, all or none; found {shown(text)}")
    if text.strip() in (NONE, ALL):
        return tuple(range(depth)) if text.strip() == ALL else ()
    try:
        plan = Plan.parse(text)
    except PlanError as refused:
        raise PlanError(f"{what}: {refused.reason}", text=refused.text, position=refused.position) from None
    layers = tuple(stage.layer for stage in plan.stages if isinstance(stage, Visit) and stage == Visit(stage.layer))
    if len(layers) < len(plan.stages):
        raise PlanError(f"{what}: whole layers are named, without repeats or groups, as in 0-3 8; found {text}")
    if list(layers) != sorted(set(layers)):
        raise PlanError(f"{what}: layers are named once each and in ascending order, as in 0-3 8; found {text}")
    return layers


def write_layers(layers: tuple[int, ...]) -> str:
    """The text of ascending layers.

    >>> write_layers((0, 1, 2, 8)), write_layers(())
    ('0-2 8', 'none')
    """
    return str(Plan.of(layers)) if layers else NONE
