"""Whether a node's answers are believed: which hops are compared, what a comparison shows, and who is quarantined.

    SpotCheck     which hops of a node are run on a replica as well
    NormBounds    which hops change the norm of the state as no other does
    judge         from the answers of several nodes to one hop: who is right
    Trust         what is known of every node, hop by hop

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
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, isfinite, log, sqrt

import numpy as np

from layerwise.errors import SwarmError

REMEMBERED = 400
"""Hops of one kind that bounds are learned from: the last ones."""

ENOUGH = 30
"""Hops of one kind before which there are no bounds."""

EDGES = (0.05, 0.95)
MARGIN = 3.0
LEAST_SPREAD = log(1.1)
"""The least distance of the two quantiles that is assumed: layers whose updates hardly vary have bounds too."""

TINY = 1e-30


@dataclass(frozen=True, slots=True)
class Norms:
    """The norm of the state that enters a hop, of the one that leaves it, and of their difference."""

    entering: float
    leaving: float
    update: float

    @property
    def logarithms(self) -> tuple[float, float]:
        """Those of |out - in| / |in| and of |out| / |in|."""
        below = max(self.entering, TINY)
        return log(max(self.update / below, TINY)), log(max(self.leaving / below, TINY))

    @property
    def are_finite(self) -> bool:
        """Whether all three are numbers."""
        return isfinite(self.entering) and isfinite(self.leaving) and isfinite(self.update)


@dataclass(slots=True)
class _Kind:
    """The last hops of one kind, and the bounds (low, high) of the two numbers that follow."""

    hops: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    bounds: tuple[tuple[float, float], ...] = ()
    until: int = ENOUGH

    def add(self, numbers: tuple[float, float]) -> None:
        """Remember a hop; the bounds are computed anew whenever a tenth more hops were seen."""
        self.hops.append(numbers)
        self.until -= 1
        if self.until <= 0:
            low, high = np.quantile(np.array(self.hops), EDGES, axis=0)
            margin = MARGIN * np.maximum(high - low, LEAST_SPREAD)
            self.bounds = tuple(zip((low - margin).tolist(), (high + margin).tolist(), strict=True))
            self.until = max(1, len(self.hops) // 10)


@dataclass(slots=True)
class NormBounds:
    """The bounds of every kind of hop. A kind is what hops are compared by: the layers, and whether a prompt is read.

    A prompt is a kind of its own, since the first token's state may be thousands of times as long as the others.
    """

    _kinds: dict[Hashable, _Kind] = field(default_factory=dict)

    def holds(self, kind: Hashable, norms: Norms) -> bool | None:
        """Whether the norms of a hop lie within the bounds of its kind; `None` before these are known.

        A state that is zero, or no number, is outside any bounds.
        """
        if not norms.are_finite or norms.leaving == 0:
            return False
        known = self._kinds.get(kind)
        if known is None or not known.bounds:
            return None
        return all(low <= each <= high for each, (low, high) in zip(norms.logarithms, known.bounds, strict=True))

    def learn(self, kind: Hashable, norms: Norms) -> None:
        """Add a hop to those that bounds are learned from; its node should not be under suspicion."""
        if norms.are_finite:
            self._kinds.setdefault(kind, _Kind()).add(norms.logarithms)


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


@dataclass(frozen=True, slots=True)
class SpotCheck:
    """Which hops are compared with a replica's answer; the same hops for the same seed.

    Of every node: the `first` hops, one drawn from each run of 1 / `share` hops (on the mean, where that is
    no whole number), and the first hop of every
    `requests`-th request, at which a replica needs no history.
    """

    share: float = 0.01
    seed: int = 0
    first: int = 3
    requests: int = 8

    def __post_init__(self) -> None:
        if not (0 < self.share <= 1 and self.first >= 0 and self.requests >= 1):
            raise SwarmError(
                f"a share from 0 to 1 of the hops, whole first ones and every n-th request are compared, not {self}"
            )

    def compares(self, node: str, hop: int, request: int | None = None) -> bool:
        """Whether the node's hop of this number is compared; `request` is the request's number if it begins here."""
        if hop < self.first or (request is not None and request % self.requests == self.requests - 1):
            return True
        share = Fraction(str(self.share))
        run = floor(hop * share)
        first, until = (ceil(number / share) for number in (run, run + 1))
        text = f"{self.seed} {node} {run}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) % (until - first) == hop - first


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


@dataclass(slots=True)
class _Record:
    hops: int = 0
    requests: int = 0
    strikes: int = 0


@dataclass(slots=True)
class Trust:
    """What is known of the nodes of a swarm; `quarantined` says of each node that is no longer believed why."""

    spot_check: SpotCheck = SpotCheck()
    bounds: NormBounds = field(default_factory=NormBounds)
    quarantined: dict[str, str] = field(default_factory=dict)
    _records: dict[str, _Record] = field(default_factory=dict)

    def observe(
        self, node: str, kind: Hashable, norms: Norms, *, begins: bool = False, alone: bool = False
    ) -> str | None:
        """Take note of an answer. Returns why it is to be compared with another before it is used, if it is to be.

        `kind` is that of `NormBounds`; `begins` says that this is the node's first hop of a request. With `alone` there
        is nothing to compare it with, and too many answers in a row outside the bounds quarantine the node.
        """
        record = self._records.setdefault(node, _Record())
        chosen = self.spot_check.compares(node, record.hops, record.requests if begins else None)
        record.hops += 1
        record.requests += begins
        if self.bounds.holds(kind, norms) is False:
            record.strikes += 1
            if alone and record.strikes >= STRIKES:
                self.quarantined[node] = (
                    f"{record.strikes} answers in a row changed the norm of the state as none before"
                )
            return "its norms are outside their bounds"
        record.strikes = 0
        self.bounds.learn(kind, norms)
        return "a spot check" if chosen else None

    def decide(self, judgement: Judgement, what: str = "a hop") -> tuple[str, ...]:
        """Quarantine who was proved wrong about `what`; returns the names of those who were not so before."""
        fresh = tuple(sorted(judgement.wrong - set(self.quarantined)))
        others = f"that of {' and '.join(sorted(judgement.right))}" if judgement.right else "its own or the router's"
        self.quarantined |= dict.fromkeys(fresh, f"its answer to {what} contradicts {others}")
        return fresh
