"""Settings of a swarm and its quorum."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from math import ceil
from typing import Literal, Self, TypeAlias

from layerwise.errors import SwarmError
from layerwise.plan.plan import Plan
from layerwise.swarm.answer import ExpectedCost


@dataclass(frozen=True, slots=True)
class Quorum:
    """Condition for answering requests: at least `layers` live layers, or a cost of at most `nats` nats/token.

    The cost is the upper end of the 95% interval of the loss increase from missing layers. If it is unknown, requests
    are refused.
    """

    layers: int | None = None
    nats: float | None = None

    def __post_init__(self) -> None:
        if (self.layers is None) == (self.nats is None):
            raise SwarmError("A quorum must have either layers or nats. Pass layers=8 or nats=0.5.")
        if self.layers is not None and (type(self.layers) is not int or self.layers < 1):
            raise SwarmError(f"quorum must be at least 1 layer, got {self.layers!r}.")
        if self.nats is not None and not 0 <= self.nats < float("inf"):
            raise SwarmError(f"quorum must be at least 0 nats, got {self.nats!r}.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a quorum, such as `8`, `1 layer` or `0.5 nats`.

        >>> Quorum.parse("8"), str(Quorum.parse("1 layer")), str(Quorum.parse("0.5 nats"))
        (Quorum(layers=8, nats=None), '1 layer', '0.5 nats')
        """
        match = re.fullmatch(r"\s*(?:(\d+)\s*(?:layers?)?|(\d+(?:\.\d*)?|\.\d+)\s*nats?)\s*", text, re.ASCII)
        if match is None:
            raise SwarmError(f"quorum must be a number of layers (8) or of nats (0.5 nats), got {text!r}.")
        return cls(layers=int(match[1])) if match[1] is not None else cls(nats=float(match[2]))

    def __str__(self) -> str:
        if self.layers is not None:
            return f"{self.layers} layer{'s' * (self.layers != 1)}"
        return f"{self.nats:g} nats"

    def explain_refusal(self, live: Collection[int], missing: Collection[int], expected: ExpectedCost) -> str | None:
        """Return why these live and missing layers do not meet the quorum, or `None` if they do."""
        if self.layers is not None:
            if len(live) >= self.layers:
                return None
            total = len(live) + len(missing)
            are = "is" if len(live) == 1 else "are"
            return f"{len(live)} of {total} layers {are} live and the quorum is {self}{_format_missing(missing)}"
        if not live:
            return f"no layer is live and the quorum is {self}"
        if expected.high is None:
            return f"the cost of the missing layers is unknown and the quorum is {self}{_format_missing(missing)}"
        if self.nats is not None and expected.high <= self.nats:
            return None
        return (
            f"the missing layers are expected to cost {expected.nats:.3g} nats/token, at most {expected.high:.3g}, "
            f"and the quorum is {self}{_format_missing(missing)}"
        )


def _format_missing(missing: Collection[int]) -> str:
    return f"; missing: {Plan.of(sorted(missing))}" if missing else ""


OnLoss: TypeAlias = Literal["keep", "recompute"]
"""Policy when the last replica of a layer fails: `keep` the KV caches, or `recompute` all tokens without the layer."""


@dataclass(frozen=True, slots=True)
class SwarmSettings:
    """Settings of a swarm.

    Args:
        on_loss: Policy when the last replica of a layer fails.
        quorum: Condition for answering a request (default: at least half of the layers are live).
        replacements: Names of models whose layers may replace missing layers with the same number.
        first_deadline: Deadline in seconds for the calls of a node whose latency is not yet known.
        min_deadline: Lower bound of all deadlines in seconds.
        spot_share: Fraction of requests that a second node also computes, so that their results can be compared.
        health_seconds: Seconds between two health checks of a node.
        balance_after: Seconds between the failure of a node and sending its layers to other nodes.
    """

    on_loss: OnLoss = "keep"
    quorum: Quorum | None = None
    replacements: tuple[str, ...] = ()
    first_deadline: float = 10.0
    min_deadline: float = 0.5
    spot_share: float = 0.01
    health_seconds: float = 2.0
    balance_after: float = 30.0

    def __post_init__(self) -> None:
        for name in ("first_deadline", "min_deadline", "health_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SwarmError(f"{name} must be a positive number of seconds, got {getattr(self, name)!r}.")
        if not 0 <= self.spot_share <= 1:
            raise SwarmError(f"spot_share must be between 0 and 1, got {self.spot_share!r}.")

    def resolve_quorum(self, depth: int) -> Quorum:
        """Return the quorum for a plan with `depth` layers. Raises `SwarmError` if such a plan can never meet it."""
        quorum = self.quorum or Quorum(layers=ceil(depth / 2))
        if quorum.layers is not None and quorum.layers > depth:
            raise SwarmError(f"quorum must be at most the {depth} layers of the plan, got {quorum}.")
        return quorum
