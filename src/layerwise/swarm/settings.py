"""Settings of a swarm: lost layers, deadlines, checks, and the quorum.

8 layers      at least 8 layers of the plan are live
0.5 nats      the missing layers cost at most 0.5 nats/token (upper end of the interval; not met if unknown)
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from math import ceil
from typing import Literal, Self, TypeAlias

from layerwise.errors import SwarmError
from layerwise.plan.plan import Plan
from layerwise.swarm.answer import Expected


@dataclass(frozen=True, slots=True)
class Quorum:
    """The fewest `layers`, or the most `nats`, with which a request is answered: one of the two."""

    layers: int | None = None
    nats: float | None = None

    def __post_init__(self) -> None:
        if (self.layers is None) == (self.nats is None):
            raise SwarmError("a quorum is in layers or in nats, one of the two: write 8 or 0.5 nats")
        if self.layers is not None and (type(self.layers) is not int or self.layers < 1):
            raise SwarmError(f"a quorum is a whole number of layers from 1, not {self.layers!r}")
        if self.nats is not None and not 0 <= self.nats < float("inf"):
            raise SwarmError(f"a quorum is a number of nats from 0, not {self.nats!r}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a quorum as a user writes it.

        >>> Quorum.parse("8"), str(Quorum.parse("1 layer")), str(Quorum.parse("0.5 nats"))
        (Quorum(layers=8, nats=None), '1 layer', '0.5 nats')
        """
        match = re.fullmatch(r"\s*(?:(\d+)\s*(?:layers?)?|(\d+(?:\.\d*)?|\.\d+)\s*nats?)\s*", text, re.ASCII)
        if match is None:
            raise SwarmError(f"a quorum is a number of layers, such as 8, or of nats, such as 0.5 nats, not {text!r}")
        return cls(layers=int(match[1])) if match[1] is not None else cls(nats=float(match[2]))

    def __str__(self) -> str:
        if self.layers is not None:
            return f"{self.layers} layer{'s' * (self.layers != 1)}"
        return f"{self.nats:g} nats"

    def verdict(self, live: Collection[int], missing: Collection[int], expected: Expected) -> str | None:
        """Why a request is refused with these layers left and these missing; `None` if the quorum is met."""
        if self.layers is not None:
            if len(live) >= self.layers:
                return None
            total = len(live) + len(missing)
            are = "is" if len(live) == 1 else "are"
            return f"{len(live)} of {total} layers {are} live and the quorum is {self}{_named(missing)}"
        if not live:
            return f"no layer is live and the quorum is {self}"
        if expected.high is None:
            return f"nobody knows what the missing layers cost and the quorum is {self}{_named(missing)}"
        if self.nats is not None and expected.high <= self.nats:
            return None
        return (
            f"the missing layers are expected to cost {expected.nats:.3g} nats per token, at most {expected.high:.3g}, "
            f"and the quorum is {self}{_named(missing)}"
        )


def _named(missing: Collection[int]) -> str:
    return f"; missing: {Plan.of(sorted(missing))}" if missing else ""


OnLoss: TypeAlias = Literal["keep", "recompute"]
"""When the last replica of a layer is lost: `keep` the caches, or `recompute` all tokens without it."""


@dataclass(frozen=True, slots=True)
class SwarmSettings:
    """The rules of one swarm.

    Without a `quorum` half of the layers must be left. `replacements` are the names of models whose layers may stand in
    for lost ones of the same number. A node is given `first_deadline` seconds for each of its first hops, and
    `hop_floor` at least later on.
    A `spot_share` of the requests are computed a second time elsewhere, token by token, before they are believed: with
    1, all of them. `health_seconds` lie between two checks of a node; what a node held that has been away for
    `balance_after` seconds, other nodes are sent.
    """

    on_loss: OnLoss = "keep"
    quorum: Quorum | None = None
    replacements: tuple[str, ...] = ()
    first_deadline: float = 10.0
    hop_floor: float = 0.5
    spot_share: float = 0.01
    health_seconds: float = 2.0
    balance_after: float = 30.0

    def __post_init__(self) -> None:
        for name in ("first_deadline", "hop_floor", "health_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SwarmError(f"{name} is {getattr(self, name)!r}; give a number of seconds above 0")
        if not 0 <= self.spot_share <= 1:
            raise SwarmError(f"spot_share is {self.spot_share!r}; give a share from 0 to 1")

    def quorum_of(self, depth: int) -> Quorum:
        """The quorum of a plan with so many layers. Raises `SwarmError` for one that it never meets."""
        quorum = self.quorum or Quorum(layers=ceil(depth / 2))
        if quorum.layers is not None and quorum.layers > depth:
            raise SwarmError(
                f"the model has {depth} layers, so that it never meets a quorum of {quorum}: write {depth}"
            )
        return quorum
