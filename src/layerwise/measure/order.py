"""Order: the same layers in another order, against leaving them out, on every task.

"Order matters more for reasoning than for text" (Sun et al. 2024, arXiv 2407.09298, section 3.4) compares what another
order costs on different tasks. A task may just be fragile, so the same window of layers is also left out: the
comparison that decides is of order against absence.

The plans are those of the published family `painters` at the window nearest to half of the depth: the window reversed,
in ten random orders, and skipped.
"""

from __future__ import annotations

from dataclasses import replace

from layerwise.plan import Member, Plan, family

FAMILY = "order"
STRATEGIES = ("skip", "reverse", "random")


def members(depth: int) -> tuple[Member, ...]:
    """The plans for a model of `depth` layers, each with its strategy and the number of layers it touches.

    >>> [str(member.plan) for member in members(8) if member.strategy != "random"]
    ['0-2 6 7', '0-2 5-3 6 7']
    """
    published = [member for member in family("painters", depth) if member.strategy in STRATEGIES]
    window = min({member.affected for member in published}, key=lambda size: (abs(size - depth / 2), size))
    distinct = {member.plan: replace(member, family=FAMILY) for member in published if member.affected == window}
    return tuple(member for plan, member in distinct.items() if plan != Plan.identity(depth))
