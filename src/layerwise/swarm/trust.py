"""Whether a node's answers are believed: which hops are compared, and what a comparison shows.

    is_compared   which hops of a node are run on a replica as well
    NormBounds    which hops change the norm of the state as no other does
    judge         from the answers of several nodes to one hop: who is right

This finds faults: broken memory, wrong weights, a wrong version. A node that lies only where it knows itself
unwatched is another matter.

Two numbers of a hop are bounded, in their logarithms: the norm of the update beside that of the state that entered,
|out - in| / |in|, and |out| / |in|. The bounds lie three times the distance of the 5 % and 95 % quantiles beyond them,
so that an honest hop is outside about never, and a minority of wrong hops does not move them. Zeros and noise are
outside; another layer's output may well be inside, and is for comparisons to find. A hop outside its bounds proves
nothing: texts of a new kind may do that. It is a reason to compare it.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import ceil, inf, isfinite, log, nan, sqrt
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

REMEMBERED = 400
"""Hops of one kind that bounds are learned from: the last ones."""

ENOUGH = 30
"""Hops of one kind before which there are no bounds."""

EDGES = (0.05, 0.95)
MARGIN = 3.0
LEAST_SPREAD = log(1.1)
"""The least distance of the two quantiles that is assumed: layers whose updates hardly vary have bounds too."""

TINY = 1e-30


NormChange: TypeAlias = tuple[float, float]
"""The logarithms of |out - in| / |in| and of |out| / |in|; minus infinity for an output of zeros, and no number for one
that has none."""


def norm_change(entering: Tensor, leaving: Tensor) -> NormChange:
    """What a hop makes of the norm of a state."""
    before, after, update = (float(each.norm()) for each in (entering, leaving, leaving - entering))
    if not (isfinite(before) and isfinite(after) and isfinite(update)):
        return nan, nan
    below = max(before, TINY)
    return log(max(update / below, TINY)), log(max(after / below, TINY)) if after else -inf


@dataclass(slots=True)
class NormBounds:
    """The bounds (low, high) of both numbers for the hops of one kind, from the last of them.

    A prompt is a kind of its own, since the first token's state may be thousands of times as long as the others.
    """

    hops: deque[NormChange] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    bounds: tuple[tuple[float, float], ...] = ()
    until: int = ENOUGH

    def holds(self, change: NormChange) -> bool | None:
        """Whether a hop lies within the bounds; `None` before these are known.

        A state that is zero, or no number, is outside any bounds.
        """
        if not all(map(isfinite, change)):
            return False
        if not self.bounds:
            return None
        return all(low <= each <= high for each, (low, high) in zip(change, self.bounds, strict=True))

    def learn(self, change: NormChange) -> None:
        """Add a hop, which should not be under suspicion; the bounds are computed anew whenever a tenth more hops were
        seen."""
        self.hops.append(change)
        self.until -= 1
        if self.until <= 0:
            low, high = np.quantile(np.array(self.hops), EDGES, axis=0)
            margin = MARGIN * np.maximum(high - low, LEAST_SPREAD)
            self.bounds = tuple(zip((low - margin).tolist(), (high + margin).tolist(), strict=True))
            self.until = max(1, len(self.hops) // 10)


ROUTER = ""
"""The name under which the router's own layers answer: they are right."""

STRIKES = 5
"""Hops in a row outside the bounds of their norms after which a node with no replica is quarantined."""


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
    """Whether two states differ by no more than rounding may leave behind so many visits."""
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
    """The hop that is compared of those of a run."""
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
    outside: Collection[str] = (),
) -> Judgement:
    """Who is right about one hop, from the relative differences of each two answers; a node may have answered twice.

    In this order: who contradicts itself is wrong; who contradicts the router's own layers is wrong; who contradicts a
    majority of the nodes is wrong; of two that contradict each other, the one whose norms are `outside` their bounds is
    wrong. Else the next step is another answer: a third replica's, the router's, or a node's again.
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
            within = frozenset(steady) - frozenset(outside)
            agreed = bool(within) and all(within <= group_of[node] for node in within)
            right = within if agreed and within != frozenset(steady) else frozenset()
    if not right or (len(steady) == 1 and ROUTER not in steady):  # one node, however often it answers, proves nothing
        return Judgement(frozenset(), frozenset(fickle))
    return Judgement(right - {ROUTER}, frozenset(fickle) | (frozenset(steady) - right))
