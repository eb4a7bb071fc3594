"""One swarm, some of whose nodes die at the beginning: what it answered, and how long that took.

Nodes are objects of this process on virtual time, or processes of a Ray cluster, which are killed.

Rows: quality, latency, refusals by arm, replicas and dead nodes; and the arms in pairs.

Of measure `rehearsal`: the number of `nodes`, and of an `arm`, with so many nodes dead (`amount`) and each layer on one
or two of them (`condition`):

    accuracy            the share of examples right, of those that were answered after the loss; without an amount,
                        `against` the commonest class: what guessing it scores
    agreement           the share of the tokens of an answer that are those of the undisturbed answer, place by place
    nll_added           nats per token that the layers left cost on the text, above the whole model
    *_lost              paired with the same arm with no node dead
    *_above             paired with the baseline, which it is `against`, loss by loss
    p50, p95, p99       seconds of a token, or of a pass
    refused, missing, replays

Of measure `rehearsal_draw`: what one model (`arm`, `seed`) did in one draw, which is the `task`.

Intervals are over draws of the nodes that die: each draw counts once, with the mean over the seeds of an arm.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerwise.experiments.engines.forecast import load_of_machine
from layerwise.measure.stats.estimate import median_interval
from layerwise.measure.stats.seeds import over_seeds
from layerwise.plan import Plan
from layerwise.results import Score
from layerwise.results.vocabulary import BASELINE, NODES, REHEARSAL
from layerwise.stack import Stack
from layerwise.swarm.answer import Decoding
from layerwise.swarm.gathering import gather
from layerwise.swarm.nodes.local import Fault, Schedule
from layerwise.swarm.rehearsal import Ended, answer_all, run_all
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.swarm import Swarm
from layerwise.swarm.wire import to_array, to_tensor

JITTER = 0.2
"""The standard deviation of the logarithm of what a hop takes."""


LEAST_TIMED = 9
"""Passes that are timed at least, for the median of hops and of layers to have an interval."""


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds that a hop takes beside its layers, and a layer; and how they were measured, if they were."""

    hop: float
    layer: float
    measured: str = ""


@dataclass(frozen=True, slots=True)
class DeadNodes:
    """Which of the nodes die, and when, in shares of the time of one undisturbed pass; `seed` draws delays as well."""

    nodes: int
    replicas: int
    dead: tuple[tuple[int, float], ...]
    seed: int

    @classmethod
    def drawn(cls, nodes: int, replicas: int, count: int, seed: str) -> DeadNodes:
        """The loss of `count` of the nodes, in the order that the seed gives: more dead nodes are these and others."""
        chance = random.Random(f"rehearsal/{seed}/{nodes}")
        order = [(node, chance.uniform(0.0, 0.8)) for node in chance.sample(range(nodes), nodes)]
        return cls(nodes, replicas, tuple(order[:count]), chance.randrange(2**31))

    def schedule(self, times: Times, depth: int) -> Schedule:
        """The faults, in seconds from the beginning."""
        whole = times.hop + depth * times.layer
        faults = tuple(Fault(f"node-{node}", "die", at * whole) for node, at in self.dead)
        return Schedule(faults, times.hop, times.layer, JITTER, self.seed)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """How the requests ended: those that met the loss first, then those that came after it; and what happened."""

    first: tuple[Ended, ...]
    later: tuple[Ended, ...]
    events: Counter[str]

    @property
    def ended(self) -> tuple[Ended, ...]:
        """All requests."""
        return (*self.first, *self.later)

    @property
    def seconds(self) -> list[float]:
        """What every token, or every pass, that was answered took."""
        return [second for each in self.ended if each.answer is not None for second in each.seconds]

    @property
    def refused(self) -> float:
        """The share of the requests that were refused."""
        return sum(each.answer is None for each in self.ended) / len(self.ended)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a rehearsal takes place: what hops and layers take, how many requests run at once, and on virtual time or,
    with an `address`, on the Ray cluster there."""

    times: Times
    streams: int
    address: str | None = None


def passes(
    stack: Stack, loss: DeadNodes, stage: Stage, settings: SwarmSettings, inputs: Sequence[dict[str, Tensor]]
) -> Outcome:
    """Single forward passes on a swarm that meets a loss."""
    return _outcome(stack, loss, stage, settings, inputs, lambda swarm, some: run_all(swarm, some, stage.streams))


def answers(
    stack: Stack, loss: DeadNodes, stage: Stage, settings: SwarmSettings, prompts: Sequence[Sequence[int]], new: int
) -> Outcome:
    """Greedy answers of a swarm that meets a loss."""
    decoding = Decoding(new)
    return _outcome(
        stack, loss, stage, settings, prompts, lambda swarm, some: answer_all(swarm, some, decoding, stage.streams)
    )


def _outcome(
    stack: Stack,
    loss: DeadNodes,
    stage: Stage,
    settings: SwarmSettings,
    wanted: Sequence[Any],
    perform: Callable[[Swarm, Sequence[Any]], tuple[Ended, ...]],
) -> Outcome:
    schedule = loss.schedule(stage.times, stack.depth)
    virtual = None if stage.address else schedule
    swarm = gather(stack, loss.nodes, loss.replicas, settings=settings, schedule=virtual, address=stage.address)
    with swarm, nullcontext() if virtual else _deaths(swarm, schedule):
        # A request begins when one of the first ends, and by then the nodes are dead.
        first = [wanted[number % len(wanted)] for number in range(stage.streams)]
        ended = perform(swarm, [*first, *wanted])
        events = Counter(event.kind for event in swarm.members.events)
        return Outcome(ended[: stage.streams], ended[stage.streams :], events)


@contextmanager
def _deaths(swarm: Swarm, schedule: Schedule) -> Iterator[None]:
    """Processes are killed when the schedule says, in seconds from now."""
    transport: Any = swarm.router.calling.transport
    timers = [threading.Timer(fault.at, transport.kill, [fault.node]) for fault in schedule.faults]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()


def measured_times(stack: Stack, inputs: dict[str, Tensor], seconds: float = 1.0) -> Times:
    """What a layer takes on these inputs on this machine, and turning its state into bytes and back, as medians, with
    one thread, as a node has.

    `measured` has the 95 % interval of each median, and the machine's load: a busy machine takes longer.
    """
    layers, hops = list[float](), list[float]()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            captured = stack.capture(**inputs)
            plan = Plan.identity(stack.depth)
            stack.run(plan, captured)  # the first pass takes longer
            ends = time.perf_counter() + seconds
            while len(layers) < LEAST_TIMED or time.perf_counter() < ends:
                began = time.perf_counter()
                state = stack.run(plan, captured)
                layers.append((time.perf_counter() - began) / stack.depth)
                began = time.perf_counter()
                to_tensor(to_array(to_tensor(to_array(state))))
                hops.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    intervals = f"{_interval(hops)} and {_interval(layers)}"
    return Times(median(hops), median(layers), f"medians of {len(hops)}, {intervals} ms, {load_of_machine()}")


def _interval(seconds: Sequence[float]) -> str:
    low, high = median_interval(seconds)
    return f"[{1000 * low:.3g}, {1000 * high:.3g}]"


QUALITY = ("accuracy", "agreement", "nll_added")

Values = Mapping[str, float]
"""What one draw gave, by metric, as the mean over the seeds of an arm."""

Level = tuple[int, int]
"""Replicas, and the nodes that are dead."""


def columns_of(arm: str, replicas: int, dead: int) -> dict[str, Any]:
    """The columns of an arm at a level.

    >>> columns_of("baseline", 1, 3)
    {'arm': 'baseline', 'condition': '1 replica', 'amount': 3}
    """
    return {"arm": arm, "condition": f"{replicas} replica{'s' * (replicas != 1)}", "amount": dead}


def rows(outcomes: Mapping[str, Mapping[Level, Sequence[Values]]], nodes: int) -> Iterator[Score]:
    """The rows of every arm; `outcomes[arm][level][n]` is the n-th draw, the same loss for every arm."""
    yield Score(REHEARSAL, NODES, float(nodes))
    for arm, by_level in outcomes.items():
        for (replicas, dead), drawn in by_level.items():
            own = columns_of(arm, replicas, dead)
            for metric in drawn[0]:
                yield from _score(metric, [each[metric] for each in drawn if metric in each], **own)
            for metric in (name for name in QUALITY if name in drawn[0]):
                whole = by_level[replicas, 0]
                if dead and len(whole) == len(drawn):
                    lost = _paired(whole, drawn, metric)
                    lost = lost if metric != "nll_added" else [-x for x in lost]
                    yield from _score(f"{metric}_lost", lost, **own)
                others = outcomes.get(BASELINE, {}).get((replicas, dead))
                if arm != BASELINE and others is not None:
                    above = _paired(drawn, others, metric)
                    yield from _score(f"{metric}_above", above, against=BASELINE, **own)


def _paired(drawn: Sequence[Values], others: Sequence[Values], metric: str) -> list[float]:
    pairs = zip(drawn, others, strict=True)
    return [each[metric] - other[metric] for each, other in pairs if metric in each and metric in other]


def _score(metric: str, values: Sequence[float], **columns: Any) -> Iterator[Score]:
    """The mean over draws with Student's interval; no interval where all draws give the same, no row without any."""
    if values:
        low, high = over_seeds(values, metric)
        yield Score(REHEARSAL, metric, float(np.mean(values)), low, high, documents=len(values), **columns)
