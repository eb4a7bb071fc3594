"""One request as its router tracks it: its plan, its route, and which plan wrote which token."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from layerwise.errors import BelowQuorumError, SwarmError
from layerwise.plan import Plan
from layerwise.stack import Capture
from layerwise.swarm.answer import UNKNOWN, Expected, TokenSpan
from layerwise.swarm.live_plan import LivePlan, layers_of
from layerwise.swarm.messages import RemoteLayer, RemoteVisit
from layerwise.swarm.route import Leg


def _refuse_to_recapture() -> Capture:
    raise SwarmError("a request that has run no pass cannot start over")


@dataclass(eq=False)
class SwarmRequest:
    """A request in the swarm; nodes know it by its unique `key`.

    `recapture` makes one pass of all tokens so far, and `index` is the number of passes since the last one of those.
    `touched` are the nodes that were sent anything, `used` those whose answers were used, and `doubted` those of them
    found to be wrong, each with its first token. `checkers` are the nodes that compute a leg a second time. `written`
    is the plan that each pass ended with.
    """

    request: str
    key: str
    requested: Plan
    live: LivePlan
    recapture: Callable[[], Capture] = _refuse_to_recapture
    index: int = 0
    legs: tuple[Leg, ...] = ()
    checkers: dict[tuple[RemoteVisit, ...], str] = field(default_factory=dict)
    replaced: dict[RemoteLayer, RemoteLayer] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    touched: set[str] = field(default_factory=set)
    used: dict[str, int] = field(default_factory=dict)
    doubted: dict[str, int] = field(default_factory=dict)
    written: list[LivePlan] = field(default_factory=list)
    must_restart: bool = False
    is_refereed: bool = False

    @classmethod
    def of(cls, request: str, requested: Plan) -> SwarmRequest:
        live = LivePlan.of(requested)
        assert live is not None
        return cls(request, f"{request}/{secrets.token_hex(8)}", requested, live)

    @cached_property
    def layers(self) -> tuple[RemoteLayer, ...]:
        return layers_of(self.requested)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(layer.number for layer in self.layers))

    def restart(self) -> Capture:
        """Return one pass of all tokens so far; the nodes forget what they have of them."""
        self.index, self.legs, self.must_restart = 0, (), False
        self.checkers.clear()
        return self.recapture()

    def lose(self, missing: Collection[RemoteLayer]) -> None:
        """Continue without the `missing` layers and with all others. Raises `BelowQuorumError` if none is left."""
        live = LivePlan.of(self.requested, missing, self.replaced)
        if live is None:
            raise BelowQuorumError(f"request {self.request} cannot be answered: no layer of {self.requested} is left")
        kept = frozenset(live.visits)
        legs = (Leg(leg.node, tuple(visit for visit in leg.visits if visit in kept)) for leg in self.legs)
        self.live, self.legs = live, tuple(leg for leg in legs if leg.visits)

    def spans(self, expected: Callable[[LivePlan], Expected], recomputed: bool) -> tuple[TokenSpan, ...]:
        cuts = {number for number in range(1, len(self.written)) if self.written[number] != self.written[number - 1]}
        cuts |= {0, *self.doubted.values()}
        made: list[TokenSpan] = []
        lacked = frozenset[int]()
        for start, stop in pairwise((*sorted(cuts), len(self.written))):
            live = self.written[start]
            missing = frozenset(live.missing_numbers)
            doubted = tuple(sorted(node for node, first in self.doubted.items() if first <= start))
            earlier = tuple(sorted(lacked - missing))
            known = not doubted and (recomputed or not earlier)
            cost = expected(live) if known else UNKNOWN
            made.append(TokenSpan(start, stop, str(live.running), live.missing_numbers, cost, earlier, doubted))
            lacked |= missing
        return tuple(made)

    def doubt(self, node: str) -> None:
        first = self.used.pop(node, None)
        if first is not None:
            self.must_restart = True
            if first < self.tokens:
                self.doubted.setdefault(node, first)
