"""A member of a family: a plan, and why it is there.

A family is a function from the depth of a model to members. The report draws one curve per `strategy`, with
`affected` along the axis, and joins the members that differ only in their `draw`.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerwise.plan.plan import Plan

GIVEN = "given"
"""The family of plans that are there for themselves: somebody wrote them."""


@dataclass(frozen=True, slots=True)
class Member:
    """One plan of a family.

    `strategy` is the curve it belongs to (`skip`, `reverse`, ...), `affected` its position on the axis: the
    number of layers the strategy touches, or what the family's own documentation says. `draw` is the seed of
    a random order.
    """

    plan: Plan
    family: str
    strategy: str
    affected: int
    draw: int | None = None
