"""Orders at an exact distance from the trained one, drawn uniformly.

The Kendall-tau distance of an order is its number of inversions: the pairs of layers that run the other way
round. Reversing m layers inverts all m(m-1)/2 pairs, a uniform shuffle half of them on average; to see what
lies between, orders are drawn uniformly among those with exactly k inversions. The number of them (a Mahonian
number) obeys

    count(m, k) = sum_{c=0}^{min(k, m-1)} count(m-1, k-c)

where c is how many of the m-1 smaller elements the largest one stands before. Read backwards, the sum is a
way to draw: choose c in proportion to its term, put the largest element c positions from the end, and go on with
m-1 and k-c.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, combinations

from layerwise.errors import PlanError
from layerwise.plan.edits import generator


def most_inversions(size: int) -> int:
    """The number of pairs of `size` elements: the distance of the reversed order."""
    return size * (size - 1) // 2


def inversions(order: Sequence[int]) -> int:
    """The Kendall-tau distance of an order from the sorted one.

    >>> inversions([0, 3, 1, 2])
    2
    """
    return sum(before > after for before, after in combinations(order, 2))


def draw_order(size: int, distance: int, seed: int) -> tuple[int, ...]:
    """An order of `range(size)`, uniform among those with exactly `distance` inversions.

    >>> draw_order(6, 15, seed=0)
    (5, 4, 3, 2, 1, 0)
    >>> inversions(draw_order(29, 100, seed=0))
    100
    """
    most = most_inversions(size)
    if type(distance) is not int or not 0 <= distance <= most:
        raise PlanError(f"{size} layers have orders at Kendall-tau distances 0 to {most}, not {distance!r}")
    if distance > most // 2:
        return draw_order(size, most - distance, seed)[::-1]
    counts = _counts(size)
    chooser = generator(seed)
    offsets: list[int] = []
    for smaller in range(size - 1, -1, -1):
        offset = _draw_offset(counts[smaller], min(distance, smaller), distance, chooser)
        offsets.append(offset)
        distance -= offset
    order: list[int] = []
    for element, offset in enumerate(reversed(offsets)):
        order.insert(element - offset, element)
    return tuple(order)


def _draw_offset(count: tuple[int, ...], most: int, distance: int, chooser: random.Random) -> int:
    """An offset c in 0..most, in proportion to `count[distance - c]`: exactly, in whole numbers."""
    terms = [count[distance - offset] if distance - offset < len(count) else 0 for offset in range(most + 1)]
    ticket = chooser.randrange(sum(terms))
    return next(offset for offset, upto in enumerate(accumulate(terms)) if ticket < upto)


@lru_cache(maxsize=1)
def _counts(size: int) -> tuple[tuple[int, ...], ...]:
    """Row m = 0..size-1: how many orders of m elements have k inversions, k up to half the pairs of `size`."""
    rows: list[tuple[int, ...]] = [(1,)]
    for elements in range(1, size):
        length = min(most_inversions(elements), most_inversions(size) // 2) + 1
        upto = [0, *accumulate(rows[-1])]
        upto += [upto[-1]] * (length + 1 - len(upto))
        rows.append(tuple(upto[k + 1] - upto[max(0, k + 1 - elements)] for k in range(length)))
    return tuple(rows)
