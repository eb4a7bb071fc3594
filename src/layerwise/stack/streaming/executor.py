"""Run many plans on many batches, layer by layer, with few layers in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from layerwise.plan import Sublayer
from layerwise.stack.executors.capture import Capture
from layerwise.stack.executors.graph import Apply, Graph, GraphExecutor, inputs, most_live
from layerwise.stack.stack import Stack
from layerwise.stack.streaming.resident import ResidentLayers


@dataclass
class StreamedExecutor:
    """Runs graphs of plans on several batches, using each layer for all batches once it is in memory."""

    stack: Stack
    resident: ResidentLayers
    work: Sequence[tuple[Capture, Graph]]
    schedule: ReadingSchedule | None = None
    most_live: int = 0
    walks: list[GraphExecutor] = field(init=False)

    def __post_init__(self) -> None:
        self.walks = [
            GraphExecutor(graph, partial(self._apply, captured), captured.state) for captured, graph in self.work
        ]

    def states(self) -> Iterator[tuple[int, int, Tensor] | Reading]:
        """Yield `(batch, node, state)` for every node at which a plan ends, and each completed `Reading`."""
        graphs = distinct_graphs([graph for _, graph in self.work])
        schedule = self.schedule or reading_schedule(graphs, self.resident.most)
        position = {id(graph): number for number, graph in enumerate(graphs)}
        if any(
            isinstance(node, Apply) and node.variant.sublayer is not None for graph in graphs for node in graph.nodes
        ):
            self.stack.branches(self.work[0][0])  # found in a separate pass, which reads every layer
        for reading in read_in_order(self.resident, schedule):
            for batch, (walk, (_, graph)) in enumerate(zip(self.walks, self.work, strict=True)):
                for node, state in walk.walk(reading.nodes[position[id(graph)]]):
                    yield batch, node, state
                self.most_live = max(self.most_live, sum(each.live for each in self.walks))
            yield reading

    def _apply(self, captured: Capture, layer: int, state: Tensor, part: Sublayer | None, source: str | None) -> Tensor:
        return self.stack.apply(layer, state, captured, part, source)


def read_in_order(resident: ResidentLayers, schedule: ReadingSchedule) -> Iterator[Reading]:
    resident.release_all()
    for number, reading in enumerate(schedule.readings):
        if reading.released is not None:
            resident.release(reading.released)
        resident.read(reading.layer)
        if number + 1 < len(schedule.readings):
            resident.read_ahead(schedule.readings[number + 1].layer)
        yield reading


def distinct_graphs(graphs: Sequence[Graph]) -> list[Graph]:
    return list({id(graph): graph for graph in graphs}.values())


@dataclass(frozen=True, slots=True)
class StreamingEstimate:
    """Estimated cost of running plans with layers on disk.

    Attributes:
        rounds: Numbers of the batches in each group. A layer that is read serves all batches of a group.
        readings: Total number of layer reads.
        bound: Minimum number of layer reads in any order.
        bytes_read: Total bytes read.
        resident_bytes: Peak memory of layers.
        state_bytes: Peak memory of hidden states.
    """

    rounds: tuple[tuple[int, ...], ...]
    readings: int
    bound: int
    bytes_read: int
    resident_bytes: int
    state_bytes: int


def streaming_estimate(resident: ResidentLayers, work: Sequence[tuple[int, Graph]]) -> StreamingEstimate:
    schedules = {id(graph): reading_schedule([graph], resident.most) for _, graph in work}
    needs = [size * schedules[id(graph)].live[0] for size, graph in work]
    allowed = sum(sorted(resident.sizes)[-resident.most :])
    rounds: list[list[int]] = []
    taken = 0
    for number, need in enumerate(needs):
        if not rounds or taken + need > allowed:
            rounds.append([])
            taken = 0
        rounds[-1].append(number)
        taken += need
    readings = bound = read = 0
    for each in rounds:
        graphs = distinct_graphs([work[number][1] for number in each])
        schedule = schedules[id(graphs[0])] if len(graphs) == 1 else reading_schedule(graphs, resident.most)
        readings += len(schedule.readings)
        bound += schedule.bound
        read += sum(resident.sizes[reading.layer] for reading in schedule.readings)
    return StreamingEstimate(
        tuple(map(tuple, rounds)),
        readings,
        bound,
        read,
        allowed,
        max((sum(needs[number] for number in each) for each in rounds), default=0),
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """A layer read: the layer to release, the layer to read, and the nodes of each graph to compute then."""

    layer: int
    released: int | None
    nodes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ReadingSchedule:
    """The layer reads for some graphs, their minimum number (`bound`), and the peak number of states per graph."""

    readings: tuple[Reading, ...]
    bound: int
    live: tuple[int, ...]


def reading_schedule(graphs: Sequence[Graph], most: int) -> ReadingSchedule:
    """Schedule the layer reads for batches of these graphs, with at most `most` layers in memory.

    If `most` is at least 2, room for one layer is reserved for reading ahead.

    >>> from layerwise.plan import Plan
    >>> from layerwise.stack.executors.graph import build
    >>> found = reading_schedule([build(map(Plan.parse, ("0-3", "1-3", "0 2 3", "0 1 3", "0-2")))], 2)
    >>> [reading.layer for reading in found.readings], found.bound
    ([0, 1, 2, 3], 4)
    """
    walk = _Walk(graphs, max(1, most - 1))
    readings = tuple(walk.readings())
    orders = [[node for reading in readings for node in reading.nodes[number]] for number in range(len(graphs))]
    live = tuple(most_live(graph, order) for graph, order in zip(graphs, orders, strict=True))
    return ReadingSchedule(readings, _lower_bound(graphs, most), live)


@dataclass
class _Walk:
    graphs: Sequence[Graph]
    slots: int
    resident: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.readers: list[dict[int, list[int]]] = [defaultdict(list) for _ in self.graphs]
        self.waits = [[len(set(inputs(node))) for node in graph.nodes] for graph in self.graphs]
        self.left: Counter[int] = Counter()
        self.done = [[False] * len(graph.nodes) for graph in self.graphs]
        self.height = [[1] * len(graph.nodes) for graph in self.graphs]
        self.ready: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, graph in enumerate(self.graphs):
            for index, node in enumerate(graph.nodes):
                for read in set(inputs(node)):
                    self.readers[number][read].append(index)
                if isinstance(node, Apply):
                    self.left[node.layer] += 1
            for index in range(len(graph.nodes) - 1, -1, -1):
                for read in inputs(graph.nodes[index]):
                    self.height[number][read] = max(self.height[number][read], self.height[number][index] + 1)

    def readings(self) -> Iterator[Reading]:
        computed: list[list[int]] = [[] for _ in self.graphs]
        for number in range(len(self.graphs)):
            self._complete(number, 0, computed)
        while any(self.ready.values()):
            released = self._layer_to_release()
            if released is not None:
                self.resident.remove(released)
            layer = self._next_layer()
            self.resident.append(layer)
            while ready := next((self.ready[layer] for layer in self.resident if self.ready[layer]), None):
                self._complete(*ready.pop(), computed)
            yield Reading(layer, released, tuple(map(tuple, computed)))
            computed = [[] for _ in self.graphs]

    def _complete(self, number: int, index: int, computed: list[list[int]]) -> None:
        nodes, waiting = self.graphs[number].nodes, [index]
        while waiting:
            current = waiting.pop()
            node = nodes[current]
            self.done[number][current] = True
            computed[number].append(current)
            if isinstance(node, Apply):
                self.left[node.layer] -= 1
            for reader in self.readers[number][current]:
                self.waits[number][reader] -= 1
                if not self.waits[number][reader]:
                    following = nodes[reader]
                    if isinstance(following, Apply):
                        self.ready[following.layer].append((number, reader))
                    else:
                        waiting.append(reader)

    def _layer_to_release(self) -> int | None:
        if len(self.resident) < self.slots:
            return None
        idle = next((layer for layer in self.resident if not self.left[layer]), None)
        return idle if idle is not None else max(self.resident, key=self._distances().__getitem__)

    def _distances(self) -> dict[int, int]:
        nearest: dict[int, int] = defaultdict(int)
        for number, graph in enumerate(self.graphs):
            distance = [0] * len(graph.nodes)
            for index, node in enumerate(graph.nodes):
                if self.done[number][index]:
                    continue
                before = max((distance[read] for read in inputs(node)), default=0)
                distance[index] = before + isinstance(node, Apply)
                if isinstance(node, Apply):
                    nearest[node.layer] = min(nearest.get(node.layer, before), before)
        return nearest

    def _next_layer(self) -> int:
        waiting = [layer for layer, nodes in sorted(self.ready.items()) if nodes]
        for layer in waiting:
            if self._count_reached(layer) == self.left[layer]:
                return layer
        return max(waiting, key=lambda layer: sum(self.height[number][index] for number, index in self.ready[layer]))

    def _count_reached(self, layer: int) -> int:
        waits: dict[tuple[int, int], int] = {}
        reached, waiting = 0, list(self.ready[layer])
        allowed = {layer, *self.resident}
        while waiting:
            number, index = waiting.pop()
            node = self.graphs[number].nodes[index]
            reached += isinstance(node, Apply) and node.layer == layer
            for reader in self.readers[number][index]:
                left = waits[number, reader] = waits.get((number, reader), self.waits[number][reader]) - 1
                following = self.graphs[number].nodes[reader]
                if not left and (not isinstance(following, Apply) or following.layer in allowed):
                    waiting.append((number, reader))
        return reached


def _lower_bound(graphs: Iterable[Graph], most: int) -> int:
    plans = {plan for graph in graphs for plan in graph.ends}
    layers = {step.layer for plan in plans for step in plan.steps()}
    orders = {tuple(step.layer for step in plan.steps()) for plan in plans if not any(s.opens for s in plan.steps())}
    return max([len(layers), *(_fewest_readings(order, most) for order in orders if len(order) > len(set(order)))])


def _fewest_readings(order: Sequence[int], most: int) -> int:
    following = [len(order)] * len(order)
    last: dict[int, int] = {}
    for position in range(len(order) - 1, -1, -1):
        following[position] = last.get(order[position], len(order))
        last[order[position]] = position
    held: dict[int, int] = {}  # by layer, the position of its next use
    readings = 0
    for position, layer in enumerate(order):
        if layer not in held:
            readings += 1
            if len(held) == most:
                del held[max(held, key=held.__getitem__)]
        held[layer] = following[position]
    return readings
