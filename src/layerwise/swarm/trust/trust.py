"""Whether a node's answers are believed: which hops are compared, what a comparison shows, and who is quarantined.

    SpotCheck     which hops of a node are run on a replica as well
    judge         from the answers of several nodes to one hop: who is right
    judge_paths   from the outcomes of several routes of one pass: which node is wrong
    Trust         what is known of every node, hop by hop

This finds faults: broken memory, wrong weights, a wrong version. A node that lies only where it knows itself
unwatched is another matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, sqrt

from layerwise.errors import SwarmError
from layerwise.swarm.trust.norm_bounds import NormBounds, Norms

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
    """Of the nodes that answered the same hop: who is right, who is wrong, and between whom it is not decided."""

    right: frozenset[str]
    wrong: frozenset[str]
    undecided: frozenset[str] = frozenset()


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
        return Judgement(frozenset(), frozenset(fickle), frozenset(steady if len(steady) > 1 else ()))
    return Judgement(right - {ROUTER}, frozenset(fickle) | (frozenset(steady) - right))


def judge_paths(
    paths: Sequence[Collection[str]], differences: Sequence[Sequence[float]], tolerated: float
) -> Judgement:
    """Which node is wrong, from the outcomes of several routes of one pass through the same layers in the same order.

    A majority of the paths is right. The nodes that only wrong paths share are wrong if there is one of them on each;
    where several could be, it is not decided between them.
    """
    agreeing = [[j for j, each in enumerate(row) if each <= tolerated] for row in differences]
    majority = max(agreeing, key=len, default=[])
    everyone = frozenset(node for path in paths for node in path)
    if 2 * len(majority) <= len(paths):
        return Judgement(frozenset(), frozenset(), everyone)
    right = frozenset(node for number in majority for node in paths[number])
    suspects = [frozenset(path) - right for number, path in enumerate(paths) if number not in majority]
    wrong = frozenset(node for each in suspects if len(each) == 1 for node in each)
    explained = [each for each in suspects if not each & wrong]
    return Judgement(right, wrong, frozenset(node for each in explained for node in each))


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

    def readmit(self, node: str) -> None:
        """Begin anew with a node that was started again: its first hops are compared."""
        self.quarantined.pop(node, None)
        self._records.pop(node, None)
