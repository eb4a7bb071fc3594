"""What it takes to run many plans with the layers on the disk, known beforehand: readings, bytes, and live states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerwise.stack.executors.graph import Graph
from layerwise.stack.streaming.executor import distinct_graphs
from layerwise.stack.streaming.readings import reading_schedule
from layerwise.stack.streaming.resident import ResidentLayers


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
    """The estimate for batches, each as the bytes of one hidden state and the graph of its plans.

    As many batches share their readings as have states that take no more memory than the layers may, at least one.
    """
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
        tuple(map(tuple, rounds)), readings, bound, read, allowed,
        max((sum(needs[number] for number in each) for each in rounds), default=0),
    )  # fmt: skip
