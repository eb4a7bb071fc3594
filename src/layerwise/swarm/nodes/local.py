"""Simulated cluster whose nodes are objects in this process and fail on a schedule.

On a `VirtualLoop`, the clock jumps to the next event, so runs are deterministic and waiting costs no time.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import torch

from layerwise.swarm.messages import Array, Gone, Message, Reply, Response, RunLayers
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.wire import to_array

Corruption: TypeAlias = Literal["noise", "zeros", "flip"]
"""Output of a faulty node: random numbers (`noise`), `zeros`, or the correct output with one flipped bit (`flip`)."""

FaultKind: TypeAlias = Literal["fail", "pause", "slow", "twice", "lost", "wrong"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A simulated fault of `node` from time `at` to `until`, in seconds.

    `fail`: the node fails and loses its state. `pause`: it answers only after `until`. `slow`: each call takes
    `seconds` longer. `twice`: each call runs twice. `lost`: calls run, but their answers are lost. `wrong`: the output
    is corrupted.
    """

    node: str
    kind: FaultKind
    at: float
    until: float = float("inf")
    seconds: float = 0.0
    corruption: Corruption = "noise"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Simulated faults and call times of nodes. `jitter` is the standard deviation of the logarithm of call times."""

    faults: tuple[Fault, ...] = ()
    call_seconds: float = 0.001
    layer_seconds: float = 0.001
    jitter: float = 0.0
    seed: int = 0

    def find(self, node: str, kind: FaultKind, now: float) -> Fault | None:
        return next(
            (
                fault
                for fault in self.faults
                if fault.node == node and fault.kind == kind and fault.at <= now < fault.until
            ),
            None,
        )


@dataclass(slots=True)
class LocalTransport:
    """Delivers messages to nodes in this process, with the faults of a `schedule`. `calls` counts calls by node."""

    members: Mapping[str, Node]
    schedule: Schedule = field(default_factory=Schedule)
    calls: Counter[str] = field(default_factory=Counter)
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    _failures: dict[str, Fault] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return False

    async def call(self, node: str, messages: Sequence[Message]) -> Sequence[Response]:
        self.calls[node] += 1
        loop = asyncio.get_running_loop()
        chance = random.Random(f"{self.schedule.seed}/{node}/{self.calls[node]}")
        arrives = loop.time()
        takes = self._seconds(node, messages, chance, arrives)
        turn = self._turns.setdefault(node, asyncio.Lock())
        await turn.acquire()
        work = asyncio.ensure_future(self._execute(node, messages, arrives, takes))
        work.add_done_callback(lambda _: turn.release())
        responses = await asyncio.shield(work)
        if self.schedule.find(node, "lost", loop.time()) is not None:
            await asyncio.sleep(1e9)
        wrong = self.schedule.find(node, "wrong", loop.time())
        if wrong is None:
            return responses
        return [
            _corrupt_reply(each, wrong.corruption, chance) if isinstance(each, Reply) else each for each in responses
        ]

    async def _execute(
        self, node: str, messages: Sequence[Message], arrives: float, takes: float
    ) -> Sequence[Response]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(takes)
        while (pause := self.schedule.find(node, "pause", loop.time())) is not None:
            await asyncio.sleep(min(pause.until, 1e9) - loop.time())
        if self._find_failure(node, arrives, loop.time()) is not None:
            return [Gone(node, "simulated failure")] * len(messages)
        responses = self.members[node].handle_all(messages)
        if self.schedule.find(node, "twice", loop.time()) is not None:
            responses = self.members[node].handle_all(messages)
        if not self.schedule.layer_seconds:
            return responses
        # Routes depend on compute times, so reproducible runs report those of the schedule.
        return [
            replace(response, seconds=self.schedule.layer_seconds * len(message.visits))
            if isinstance(response, Reply) and isinstance(message, RunLayers)
            else response
            for message, response in zip(messages, responses, strict=True)
        ]

    async def close(self) -> None: ...

    def _seconds(self, node: str, messages: Sequence[Message], chance: random.Random, now: float) -> float:
        schedule = self.schedule
        evaluations = max(len(each.visits) if isinstance(each, RunLayers) else 0 for each in messages)
        slow = schedule.find(node, "slow", now)
        usual = (schedule.call_seconds + schedule.layer_seconds * evaluations) * chance.lognormvariate(
            0.0, schedule.jitter
        )
        return usual + (0.0 if slow is None else slow.seconds)

    def _find_failure(self, node: str, first: float, last: float) -> Fault | None:
        failures = [fault for fault in self.schedule.faults if fault.node == node and fault.kind == "fail"]
        for fault in failures:
            if fault.at <= last and self._failures.get(node) != fault:
                self._failures[node] = fault
                self.members[node].restart()
        return next((fault for fault in failures if fault.at <= last and first < fault.until), None)


def _corrupt_reply(reply: Reply, corruption: Corruption, chance: random.Random) -> Reply:
    return replace(reply, state=_corrupt_array(reply.state, corruption, chance))


def _corrupt_array(state: Array, corruption: Corruption, chance: random.Random) -> Array:
    match corruption:
        case "zeros":
            return replace(state, data=bytes(len(state.data)))
        case "flip":
            index = chance.randrange(len(state.data))
            flipped = bytes([state.data[index] ^ 0x40])
            return replace(state, data=state.data[:index] + flipped + state.data[index + 1 :])
        case "noise":
            generator = torch.Generator().manual_seed(chance.randrange(2**31))
            dtype = getattr(torch, state.dtype)
            return to_array(torch.randn(state.shape, generator=generator, device="cpu").to(dtype))


class _VirtualSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("deadlock: all tasks wait, and no event is scheduled")
            self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose virtual clock starts at 0 s. It cannot wait for other threads or processes."""

    def __init__(self) -> None:
        self._selector = _VirtualSelector()
        super().__init__(self._selector)

    def time(self) -> float:
        return self._selector.now
