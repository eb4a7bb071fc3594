"""Options that name plans: families and plans of one's own, checked and met with a depth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layerwise.errors import PlanError, near_matches
from layerwise.plan import FAMILIES, Member, Plan, family
from layerwise.plan.member import GIVEN


def check_plans(families: Iterable[str], plans: Iterable[str]) -> None:
    """Raise `PlanError` for a family that is unknown and a plan that cannot be read."""
    for name in families:
        if name not in FAMILIES:
            raise PlanError(f"unknown family {name!r}; {near_matches(name, FAMILIES)}")
    for text in plans:
        Plan.parse(text)


def members_at_depth(families: Sequence[str], plans: Sequence[str], depth: int) -> tuple[Member, ...]:
    """The plans for a model of `depth` layers, the trained order first, each with the family it belongs to.

    Raises `PlanError` for a plan that runs layers the model does not have, and for a family that needs more layers.
    """
    members = [Member(Plan.identity(depth), "identity", "identity", 0)]
    for name in families:
        members.extend(_at_depth(name, depth))
    for text in plans:
        plan = Plan.parse(text)
        plan.check(depth)
        members.append(Member(plan, GIVEN, GIVEN, len(plan.steps())))
    return tuple(members)


def _at_depth(name: str, depth: int) -> tuple[Member, ...]:
    try:
        return family(name, depth)
    except PlanError as error:
        possible = [other for other in FAMILIES if _exists(other, depth)]
        raise PlanError(
            f"the family {name!r} does not exist for a model of {depth} layer{'s' * (depth != 1)} ({error}); name "
            f"others with --families, or only plans of your own with --plan. Known here: {', '.join(possible)}"
        ) from error


def _exists(name: str, depth: int) -> bool:
    try:
        return bool(family(name, depth))
    except PlanError:
        return False
