"""Whole steps for shares of them, exactly as many as there are: the method of the largest remainder."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

TIE = Fraction(1, 10**9)
"""Remainders are compared in such parts of a step."""


def apportion(shares: Sequence[float], steps: int) -> tuple[int, ...]:
    """So many of `steps` for each share: the whole part, and one more for those with the largest remainders.

    What is returned sums to `steps`, and none is a step or more from `share * steps / sum(shares)`. Of equal remainders
    the first is served, and remainders are equal that differ by no more than the rounding of shares in floating point
    (`TIE`): 8/35 and 19/35 of 1,000 steps both leave 4/7.

    >>> apportion([0.5, 0.3, 0.2], 7)
    (4, 2, 1)
    """
    total = sum(map(Fraction, shares))
    quotas = [Fraction(share) * steps / total for share in shares]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda index: round((counts[index] - quotas[index]) / TIE))
    for index in by_remainder[: steps - sum(counts)]:
        counts[index] += 1
    return tuple(counts)
