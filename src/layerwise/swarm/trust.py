"""Which answers of nodes are compared, and what a comparison shows.

It finds faults (memory, weights, versions), not a malicious node that knows which answers are compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, sqrt

import torch
from torch import Tensor

ROUTER = ""
"""The name under which the router's own layers answer: they are right."""


def tolerance(width: int, visits: int, eps: float) -> float:
    """The relative difference that rounding may leave between two honest answers to a hop.

    It is 16 times that of `layerwise.stack.rounding`, for caches that were filled in other ways and devices of other
    kinds, and at most 0.05: of a dtype with three digits, differences beyond that are no rounding either.
    """
    return min(0.05, 16 * 4 * eps * sqrt(width * max(1, visits)))


def relative_difference(left: Tensor, right: Tensor) -> float:
    """The norm of the difference, relative to the larger of the two, in float32 or wider."""
    wide = torch.promote_types(left.dtype, torch.float32)
    left, right = left.to(wide), right.to(wide)
    larger = max(float(left.norm()), float(right.norm()), 1e-30)
    return float((left - right).norm()) / larger


def agree(one: Tensor, other: Tensor, visits: int) -> bool:
    return relative_difference(one, other) <= tolerance(one.shape[-1], visits, torch.finfo(one.dtype).eps)


FIRST = 3
"""The first hops of a node, which are all compared."""

REQUESTS = 8
"""Of so many requests the first hop of one is compared, at which a replica needs no history."""


def is_compared(node: str, hop: int, request: int | None, share: float, seed: int) -> bool:
    """Whether a node's hop of this number is compared with a replica's answer; the same hops for the same seed.

    Of every node: the `FIRST` hops, one drawn from each run of 1 / `share` hops (on the mean, where that is no whole
    number), and the first hop of every `REQUESTS`-th request; `request` is the request's number if it begins here.
    """
    if hop < FIRST or (request is not None and request % REQUESTS == REQUESTS - 1):
        return True
    exact = _exact(share)
    return hop == _drawn(node, hop * exact.numerator // exact.denominator, exact, seed)


@lru_cache(maxsize=64)
def _exact(share: float) -> Fraction:
    return Fraction(str(share))


@lru_cache(maxsize=4096)
def _drawn(node: str, run: int, share: Fraction, seed: int) -> int:
    first, until = (ceil(number / share) for number in (run, run + 1))
    text = f"{seed} {node} {run}".encode()
    return first + int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) % (until - first)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of the nodes that answered the same hop: who is right, and who is wrong."""

    right: frozenset[str]
    wrong: frozenset[str]


def judge(
    nodes: Sequence[str],
    differences: Sequence[Sequence[float]],
    tolerated: float,
) -> Judgement:
    """Judge one hop from the relative differences of each two answers; a node may have answered twice.

    A node is wrong if it contradicts itself, or else the router's layers, or else a majority of the nodes. Otherwise
    another answer is needed: of a third replica, the router, or a node again.
    """
    agree = [[difference <= tolerated for difference in row] for row in differences]
    pairs = [(i, j) for i in range(len(nodes)) for j in range(len(nodes)) if i != j]
    fickle = {nodes[i] for i, j in pairs if nodes[i] == nodes[j] and nodes[i] != ROUTER and not agree[i][j]}
    steady = list(dict.fromkeys(node for node in nodes if node not in fickle))
    index = {node: nodes.index(node) for node in steady}
    group_of = {node: frozenset(other for other in steady if agree[index[node]][index[other]]) for node in steady}
    if ROUTER in steady:
        right = group_of[ROUTER]
    else:
        right = max(group_of.values(), key=len, default=frozenset())
        if 2 * len(right) <= len(steady):
            right = frozenset()
    if not right or (len(steady) == 1 and ROUTER not in steady):  # one node, however often it answers, proves nothing
        return Judgement(frozenset(), frozenset(fickle))
    return Judgement(right - {ROUTER}, frozenset(fickle) | (frozenset(steady) - right))
