"""Many plans on many batches, layer by layer; `streaming_estimate` gives the readings, bytes and live states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from layerwise.plan import Sublayer
from layerwise.stack.executors.capture import Capture
from layerwise.stack.executors.graph import Apply, Graph, GraphExecutor
from layerwise.stack.stack import Stack
from layerwise.stack.streaming.readings import Reading, ReadingSchedule, reading_schedule
from layerwise.stack.streaming.resident import ResidentLayers


@dataclass
class StreamedExecutor:
    """One execution of graphs on several batches, which share the readings of layers."""

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
        """Yields `(batch, node, state)` for every node at which a plan ends, and each reading when it is worked off."""
        graphs = distinct_graphs([graph for _, graph in self.work])
        schedule = self.schedule or reading_schedule(graphs, self.resident.most)
        position = {id(graph): number for number, graph in enumerate(graphs)}
        if any(
            isinstance(node, Apply) and node.variant.sublayer is not None for graph in graphs for node in graph.nodes
        ):
            self.stack.branches(self.work[0][0])  # found on a pass of its own, which reads every layer
        for reading in in_turn(self.resident, schedule):
            for batch, (walk, (_, graph)) in enumerate(zip(self.walks, self.work, strict=True)):
                for node, state in walk.walk(reading.nodes[position[id(graph)]]):
                    yield batch, node, state
                self.most_live = max(self.most_live, sum(each.live for each in self.walks))
            yield reading

    def _apply(self, captured: Capture, layer: int, state: Tensor, part: Sublayer | None, source: str | None) -> Tensor:
        return self.stack.apply(layer, state, captured, part, source)


def in_turn(resident: ResidentLayers, schedule: ReadingSchedule) -> Iterator[Reading]:
    resident.release_all()
    for number, reading in enumerate(schedule.readings):
        if reading.released is not None:
            resident.release(reading.released)
        resident.read(reading.layer)
        if number + 1 < len(schedule.readings):
            resident.read_ahead(schedule.readings[number + 1].layer)
        yield reading


def distinct_graphs(graphs: Sequence[Graph]) -> list[Graph]:
    """Each graph once, in the order of their first appearance; batches with the same plans have the same one."""
    return list({id(graph): graph for graph in graphs}.values())


@dataclass(frozen=True, slots=True)
class StreamingEstimate:
    """`rounds` are the numbers of the batches that share their readings, `readings` how many layers are read in all of
    them, and `bound` the fewest with which any order could do in as many rounds.

    `bytes_read` are those of the readings, `resident_bytes` the most that layers take in memory at once, and
    `state_bytes` the most that hidden states take beside them.
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
