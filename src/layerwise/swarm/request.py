"""One request as its router tracks it: the states at the start of each hop, to replay them on another node."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from layerwise.errors import BelowQuorum, SwarmError
from layerwise.plan import Plan
from layerwise.stack import Capture
from layerwise.swarm.answer import UNKNOWN, Expected, TokenSpan
from layerwise.swarm.live_plan import LivePlan, layers_of
from layerwise.swarm.messages import Arguments, Array, Pass, RemoteLayer, RemoteVisit
from layerwise.swarm.route import Leg
from layerwise.swarm.wire import encode, joined, selected


@dataclass(slots=True)
class RecordedPass:
    """One forward pass: the blocks' arguments, the states by slot, and, if needed, the `whole` pass of all tokens."""

    index: int
    arguments: Arguments
    entering: dict[int, Array] = field(default_factory=dict)
    whole: RecordedPass | None = None
    _selected: dict[tuple[int, ...], Arguments] = field(default_factory=dict)

    def entered(self, slot: int, missing: frozenset[int]) -> Array | None:
        while slot not in self.entering:
            if slot - 1 not in missing:
                return None
            slot -= 1
        return self.entering[slot]

    def enter(self, after: int | None, slot: int, state: Array) -> None:
        """Note that `state` entered at `slot` and at the unvisited slots after `after` (`None` before the first)."""
        for each in range(0 if after is None else after + 1, slot + 1):
            self.entering[each] = state

    def part(self, visits: Sequence[RemoteVisit], state: Array) -> Pass:
        layers = tuple(visit.layer.number for visit in visits)
        if layers not in self._selected:
            self._selected[layers] = selected(self.arguments, layers)
        return Pass(self.index, state, self._selected[layers])

    @property
    def bytes(self) -> int:
        states = {id(state): len(state.data) for state in self.entering.values()}
        return sum(states.values()) + self.arguments.nbytes


def _live_plan(
    request: str,
    requested: Plan,
    missing: Collection[RemoteLayer] = (),
    replaced: Mapping[RemoteLayer, RemoteLayer] | None = None,
) -> LivePlan:
    live = LivePlan.of(requested, missing, replaced)
    if live is None:
        raise BelowQuorum(f"request {request} cannot be answered: no layer of {requested} is left")
    return live


def _refuse_to_recapture() -> Capture:
    raise SwarmError("a request of a single forward pass cannot begin again")


@dataclass(eq=False)
class SwarmRequest:
    """A request in the swarm; nodes know it by its unique `key`.

    `recapture` makes one pass of all tokens so far; `one_pass` is set for a single forward pass without caches.
    `touched` are the nodes that were sent anything, `used` those whose answers were used, and `doubted` those of them
    found to be wrong, each with its first token. `written` is the plan that each pass ended with.
    """

    request: str
    key: str
    requested: Plan
    live: LivePlan
    one_pass: bool = False
    recapture: Callable[[], Capture] = _refuse_to_recapture
    passes: list[RecordedPass] = field(default_factory=list)
    legs: tuple[Leg, ...] = ()
    warm: dict[tuple[str, RemoteVisit], int] = field(default_factory=dict)
    replaced: dict[RemoteLayer, RemoteLayer] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    touched: set[str] = field(default_factory=set)
    used: dict[str, int] = field(default_factory=dict)
    doubted: dict[str, int] = field(default_factory=dict)
    written: list[LivePlan] = field(default_factory=list)
    doubtful: bool = False
    history_bytes: int = 0
    history_whole: bool = True

    @classmethod
    def of(cls, request: str, requested: Plan, *, one_pass: bool = False) -> SwarmRequest:
        key = f"{request}/{secrets.token_hex(8)}"
        return cls(request, key, requested, _live_plan(request, requested), one_pass)

    @cached_property
    def layers(self) -> tuple[RemoteLayer, ...]:
        return layers_of(self.requested)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(layer.number for layer in self.layers))

    def replay(self, record: RecordedPass, visits: Sequence[RemoteVisit], states: Sequence[Array]) -> Pass:
        if len(states) == 1:
            return record.part(visits, states[0])
        if record.whole is None:
            record.whole = RecordedPass(record.index, encode(self.recapture().calls, record.arguments.layers))
        return record.whole.part(visits, joined(states))

    def lose(self, missing: Collection[RemoteLayer]) -> None:
        """Go on without the `missing` layers, and with all others. Raises `BelowQuorum` where none is left."""
        live = _live_plan(self.request, self.requested, missing, self.replaced)
        self.live, self.legs = live, ()

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

    def missing_slots(self) -> frozenset[int]:
        return frozenset(range(len(self.requested.steps()))) - {visit.slot for visit in self.live.visits}

    def leg_at(self, position: int) -> Leg | None:
        visit = self.live.visits[position]
        return next((leg for leg in self.legs if leg.visits[0] == visit), None)

    def seen(self, leg: Leg) -> int | None:
        """The passes that the node of `leg` has run on all of its visits; `None` if on some of them more."""
        counts = {self.warm.get((leg.node, visit), 0) for visit in leg.visits}
        return counts.pop() if len(counts) == 1 else None

    def begin_again(self) -> None:
        self.passes.clear()
        self.warm.clear()
        self.legs = ()
        self.history_bytes = 0
        self.history_whole = True
        self.doubtful = False

    def doubt(self, node: str) -> None:
        first = self.used.pop(node, None)
        if first is not None:
            self.doubtful = not self.one_pass
            if first < self.tokens or self.one_pass:
                self.doubted.setdefault(node, first)
        self.forget_node(node)

    def forget_node(self, node: str) -> None:
        for key in [key for key in self.warm if key[0] == node]:
            del self.warm[key]
        self.legs = ()

    def remember(self, record: RecordedPass, most_bytes: int) -> None:
        self.passes.append(record)
        self.written.append(self.live)
        self.history_bytes += record.bytes
        if self.history_bytes > most_bytes and not self.one_pass:
            self.history_whole = False
            for each in self.passes:
                each.entering.clear()
