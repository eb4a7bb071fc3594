"""How a swarm behaves: what it does when layers are lost, how long it waits, what it checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from layerwise.errors import SwarmError
from layerwise.swarm.routing.quorum import Quorum
from layerwise.swarm.routing.route import Order, Prices

OnLoss: TypeAlias = Literal["keep", "recompute"]
"""What a request does whose last replica of a layer is lost. `keep`: earlier tokens keep the caches that the lost layer
helped to make, and later ones go without it; cheap. `recompute`: all tokens so far are computed again without it, so
that the rest is what the plan without it would have written from there."""


@dataclass(frozen=True, slots=True)
class SwarmSettings:
    """The rules of one swarm.

    `order` says whether layers may run in any order, for a model that was trained for it, or only in its own.
    Without a `quorum` half of the layers must be left. `replacements` are the names of models whose layers may stand in
    for lost ones of the same number. A node is given `first_deadline` seconds for each of its first hops, and
    `hop_floor` at least later on. `hedging` asks a second replica of a single-pass model where a hop is slow.
    `spot_share` of the hops are computed a second time elsewhere. With `paths` above 1 every request of a one-pass
    model is computed along so many routes that share as few nodes as can be, and the majority's outcome is returned.
    `history_bytes` bounds what is kept of each request for a replay. `health_seconds` lie between two checks of a
    node; what a node held that has been away for `balance_after` seconds, others take up.
    """

    order: Order = "fixed"
    on_loss: OnLoss = "keep"
    quorum: Quorum | None = None
    prices: Prices = field(default_factory=Prices)
    replacements: tuple[str, ...] = ()
    first_deadline: float = 10.0
    hop_floor: float = 0.5
    hedging: bool = True
    spot_share: float = 0.01
    paths: int = 1
    history_bytes: int = 256 * 2**20
    health_seconds: float = 2.0
    balance_after: float = 30.0
    most_running: int = 64
    most_queued: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("first_deadline", "hop_floor", "health_seconds"):
            if not getattr(self, name) > 0:
                raise SwarmError(f"{name} is {getattr(self, name)!r}; give a number of seconds above 0")
        if not 0 <= self.spot_share <= 1:
            raise SwarmError(f"spot_share is {self.spot_share!r}; give a share from 0 to 1")
        for name in ("most_running", "history_bytes", "paths"):
            if getattr(self, name) < 1:
                raise SwarmError(f"{name} is {getattr(self, name)!r}; give a number from 1")
