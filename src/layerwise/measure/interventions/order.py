"""Order: the same layers in another order, against leaving them out, on every task.

"Order matters more for reasoning than for text" (Sun et al. 2024, arXiv 2407.09298, section 3.4) compares what another
order costs on different tasks. A task may just be fragile, so the same window of layers is also left out: the
comparison that decides is of order against absence.

The plans are those of the published family `painters` at the window nearest to half of the depth: the window reversed,
in parallel, in ten random orders that are neither the trained one nor its reversal, and skipped. The published question
was asked with reverse, parallel and skip; random orders are the rest of what an order can be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from layerwise.plan import Member, Plan, edits
from layerwise.plan.painters import PAINTERS_SEEDS, published_windows

FAMILY = "order"


def members(depth: int) -> tuple[Member, ...]:
    """The plans for a model of `depth` layers, each with its strategy and the number of layers it touches.

    No plan is the unedited one, and none comes twice. A window of few layers has fewer orders than the ten that are
    published: a window of three has four beside the trained one and its reversal, and one of two has none.

    >>> [str(member.plan) for member in members(8) if member.strategy != "random"]
    ['0-2 6 7', '0-2 5-3 6 7', '0-2 (3|4|5) 6 7']
    >>> [str(member.plan) for member in members(6)]
    ['0 1 5', '0 1 4-2 5', '0 1 (2|3|4) 5', '0-2 4 3 5', '0 1 3 4 2 5', '0 1 3 2 4 5', '0 1 4 2 3 5']
    """
    start, stop = min(published_windows(depth), key=lambda window: (abs(_width(window) - depth / 2), _width(window)))
    whole = Plan.identity(depth)
    named = {
        "skip": edits.skip(whole, *range(start, stop)),
        "reverse": edits.reverse(whole, start, stop),
        "parallel": edits.parallel(whole, start, stop),
    }
    orders = [(strategy, None, plan) for strategy, plan in named.items() if plan != whole]
    drawn = [("random", seed, plan) for seed, plan in _random_orders(whole, start, stop, {whole, named["reverse"]})]
    return tuple(Member(plan, FAMILY, strategy, stop - start, seed) for strategy, seed, plan in (*orders, *drawn))


def _random_orders(whole: Plan, start: int, stop: int, known: set[Plan]) -> Iterator[tuple[int, Plan]]:
    """Up to ten orders of a window that are not `known`, each with the first seed that draws it."""
    wanted = min(len(PAINTERS_SEEDS), math.factorial(stop - start) - len(known))
    seen = set(known)
    for seed in itertools.count():
        if len(seen) == len(known) + wanted:
            return
        plan = edits.shuffle(whole, start, stop, seed)
        if plan not in seen:
            seen.add(plan)
            yield seed, plan


def _width(window: tuple[int, int]) -> int:
    return window[1] - window[0]
