"""A request as its router tracks it: its plan, its route through the nodes, and the plan behind each token."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from layerwise.errors import BelowQuorumError, SwarmError
from layerwise.plan import Plan, Step
from layerwise.plan import plan as stages
from layerwise.plan.edits import map_visits
from layerwise.stack import Capture
from layerwise.swarm.answer import UNKNOWN, ExpectedCost, TokenSpan
from layerwise.swarm.messages import RemoteLayer, RemoteVisit
from layerwise.swarm.node_records import NodeRecord


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive layer evaluations that one node runs in one call."""

    node: str
    visits: tuple[RemoteVisit, ...]


@dataclass(frozen=True, slots=True)
class NoRoute:
    """Layer evaluations that no live node can run."""

    visits: tuple[RemoteVisit, ...]


def find_route(
    visits: Sequence[RemoteVisit], records: Collection[NodeRecord], now: float
) -> tuple[Segment, ...] | NoRoute:
    """Choose a node for each layer evaluation in `visits` so that the total time is minimal.

    It uses dynamic programming over pairs of evaluation and node. Each waiting call of a node counts as an evaluation
    of all its layers, so a busy node costs more.
    """
    nodes = sorted(records, key=lambda record: record.name)
    seconds = np.full((len(visits), len(nodes)), np.inf)
    for column, record in enumerate(nodes):
        for row, visit in enumerate(visits):
            if visit.layer in record.layers:
                seconds[row, column] = record.layer_seconds
    covered = np.isfinite(seconds).any(axis=1)
    if not covered.all():
        return NoRoute(tuple(visit for visit, has_node in zip(visits, covered, strict=True) if not has_node))
    if not visits:
        return ()
    entering = np.array([record.call_latency(now) for record in nodes])
    value = entering + seconds[0]
    origins = []
    for run in seconds[1:]:
        best = int(np.argmin(value))
        stays = value <= value[best] + entering
        origins.append(np.where(stays, np.arange(len(nodes)), best))
        value = np.where(stays, value, value[best] + entering) + run
    owners = [int(np.argmin(value))]
    for origin in reversed(origins):
        owners.append(int(origin[owners[-1]]))
    segments: list[tuple[int, list[RemoteVisit]]] = []
    for visit, owner in zip(visits, reversed(owners), strict=True):
        if segments and segments[-1][0] == owner:
            segments[-1][1].append(visit)
        else:
            segments.append((owner, [visit]))
    return tuple(Segment(nodes[owner].name, tuple(run)) for owner, run in segments)


@dataclass(frozen=True, slots=True)
class LivePlan:
    """The plan that runs instead of `requested` while layers are missing. Layer evaluations keep their cache slots."""

    requested: Plan
    running: Plan
    steps: tuple[Step, ...]
    visits: tuple[RemoteVisit, ...]
    missing: frozenset[RemoteLayer]

    @classmethod
    def create(
        cls,
        requested: Plan,
        missing: Collection[RemoteLayer] = (),
        replaced: Mapping[RemoteLayer, RemoteLayer] | None = None,
    ) -> LivePlan | None:
        """Remove the `missing` layers and swap in the replacements. Returns `None` if no layer remains."""
        others = {layer: other for layer, other in (replaced or {}).items() if layer not in missing}
        slots = [
            (slot, step)
            for slot, step in enumerate(requested.steps())
            if _layer(step.layer, step.source) not in missing
        ]

        def map_visit(visit: stages.Visit) -> stages.Visit | None:
            layer = _layer(visit.layer, visit.source)
            if layer in missing:
                return None
            other = others.get(layer)
            return visit if other is None else replace(visit, layer=other.number, source=other.source or None)

        running = map_visits(requested, map_visit)
        if running is None:
            return None
        steps = running.steps()
        visits = tuple(
            RemoteVisit(slot, _layer(step.layer, step.source), step.sublayer)
            for (slot, _), step in zip(slots, steps, strict=True)
        )
        gone = frozenset(find_layers(requested)) & frozenset(missing)
        return cls(requested, running, tuple(steps), visits, gone)

    @property
    def missing_numbers(self) -> tuple[int, ...]:
        return tuple(sorted(layer.number for layer in self.missing))

    def find_boundaries(self) -> tuple[int, ...]:
        starts = {0}
        for number, step in enumerate(self.steps):
            if step.opens:
                starts.add(number)
            if step.closes:
                starts.add(number + 1)
        return tuple(sorted(starts))


def find_layers(plan: Plan) -> tuple[RemoteLayer, ...]:
    return tuple(dict.fromkeys(_layer(step.layer, step.source) for step in plan.steps()))


def _layer(number: int, source: str | None) -> RemoteLayer:
    return RemoteLayer(number, source or "")


def cut_at_boundaries(segments: Sequence[Segment], live: LivePlan) -> tuple[Segment, ...]:
    find_boundaries = {live.visits[step] for step in live.find_boundaries() if step < len(live.visits)}
    cut: list[Segment] = []
    for segment in segments:
        run: list[RemoteVisit] = []
        for visit in segment.visits:
            if run and visit in find_boundaries:
                cut.append(Segment(segment.node, tuple(run)))
                run = []
            run.append(visit)
        cut.append(Segment(segment.node, tuple(run)))
    return tuple(cut)


def _raise_no_recapture() -> Capture:
    raise SwarmError("A request cannot restart before its first pass.")


@dataclass(eq=False)
class SwarmRequest:
    """A running request. Nodes identify it by its unique `key`.

    `recapture` prepares a forward pass over all tokens so far, and `index` counts the passes since then. `contacted`
    holds the nodes that received a message. `used` maps nodes to the first token for which their results were used, and
    `doubted` maps nodes with wrong results to the first token affected. `checkers` maps a segment to the node that also
    computes it. `written` holds the plan of each pass.
    """

    request: str
    key: str
    requested: Plan
    live: LivePlan
    recapture: Callable[[], Capture] = _raise_no_recapture
    index: int = 0
    segments: tuple[Segment, ...] = ()
    checkers: dict[tuple[RemoteVisit, ...], str] = field(default_factory=dict)
    replaced: dict[RemoteLayer, RemoteLayer] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    contacted: set[str] = field(default_factory=set)
    used: dict[str, int] = field(default_factory=dict)
    doubted: dict[str, int] = field(default_factory=dict)
    written: list[LivePlan] = field(default_factory=list)
    must_restart: bool = False
    uses_referee: bool = False

    @classmethod
    def create(cls, request: str, requested: Plan) -> SwarmRequest:
        live = LivePlan.create(requested)
        assert live is not None
        return cls(request, f"{request}/{secrets.token_hex(8)}", requested, live)

    @cached_property
    def layers(self) -> tuple[RemoteLayer, ...]:
        return find_layers(self.requested)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(layer.number for layer in self.layers))

    def restart(self) -> Capture:
        """Prepare a forward pass over all tokens so far, which makes nodes clear their caches."""
        self.index, self.segments, self.must_restart = 0, (), False
        self.checkers.clear()
        return self.recapture()

    def set_missing(self, missing: Collection[RemoteLayer]) -> None:
        """Continue without the `missing` layers. Raises `BelowQuorumError` if no layer remains."""
        live = LivePlan.create(self.requested, missing, self.replaced)
        if live is None:
            raise BelowQuorumError(f"request {self.request} cannot be answered: no layer of {self.requested} is live")
        visits = frozenset(live.visits)
        segments = (
            Segment(segment.node, tuple(visit for visit in segment.visits if visit in visits))
            for segment in self.segments
        )
        self.live, self.segments = live, tuple(segment for segment in segments if segment.visits)

    def spans(self, expected: Callable[[LivePlan], ExpectedCost], recomputed: bool) -> tuple[TokenSpan, ...]:
        cuts = {number for number in range(1, len(self.written)) if self.written[number] != self.written[number - 1]}
        cuts |= {0, *self.doubted.values()}
        spans: list[TokenSpan] = []
        missing_before = frozenset[int]()
        for start, stop in pairwise((*sorted(cuts), len(self.written))):
            live = self.written[start]
            missing = frozenset(live.missing_numbers)
            doubted = tuple(sorted(node for node, first in self.doubted.items() if first <= start))
            earlier = tuple(sorted(missing_before - missing))
            is_known = not doubted and (recomputed or not earlier)
            cost = expected(live) if is_known else UNKNOWN
            spans.append(TokenSpan(start, stop, str(live.running), live.missing_numbers, cost, earlier, doubted))
            missing_before |= missing
        return tuple(spans)

    def doubt(self, node: str) -> None:
        first = self.used.pop(node, None)
        if first is not None:
            self.must_restart = True
            if first < self.tokens:
                self.doubted.setdefault(node, first)
