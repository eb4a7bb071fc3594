"""Simulated cluster: nodes are objects of this process, with a schedule of faults.

On a `VirtualLoop` the clock jumps to the next event when nothing can be computed, so that runs are deterministic and
waiting costs no time. On an ordinary event loop time is real.
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

from layerwise.swarm.messages import Array, Gone, Hop, Message, Reply, Response
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.wire import to_array

Wrongness: TypeAlias = Literal["noise", "zeros", "flip"]
"""What a faulty node returns: random numbers of the right size, zeros, or bytes of which one bit is another."""


Kind: TypeAlias = Literal["die", "pause", "slow", "twice", "lost", "wrong"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to `node` from the moment `at` until `until`, in seconds (for ever, if that is infinite).

    `die`: it is gone, and has forgotten all when it returns; `pause`: it answers nothing until then, and then late;
    `slow`: every hop takes `seconds` longer; `twice`: every hop is carried out twice, as by a network that repeats;
    `lost`: it does what it is told, and its answers are lost; `wrong`: it returns `wrongness`.
    """

    node: str
    kind: Kind
    at: float
    until: float = float("inf")
    seconds: float = 0.0
    wrongness: Wrongness = "noise"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The faults of the nodes, the seconds per `hop` and per `layer`, and the std `jitter` of log times."""

    faults: tuple[Fault, ...] = ()
    hop: float = 0.001
    layer: float = 0.001
    jitter: float = 0.0
    seed: int = 0

    def of(self, node: str, kind: Kind, now: float) -> Fault | None:
        """The fault of this kind that the node has at this moment, if it has one."""
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
    """Nodes in this process. Bad luck comes from the `schedule`; `calls` counts messages by node."""

    members: Mapping[str, Node]
    schedule: Schedule = field(default_factory=Schedule)
    calls: Counter[str] = field(default_factory=Counter)
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    _deaths: dict[str, Fault] = field(default_factory=dict)

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
        work = asyncio.ensure_future(self._carry_out(node, messages, arrives, takes))
        work.add_done_callback(lambda _: turn.release())
        responses = await asyncio.shield(work)
        if self.schedule.of(node, "lost", loop.time()) is not None:
            await asyncio.sleep(1e9)
        wrong = self.schedule.of(node, "wrong", loop.time())
        if wrong is None:
            return responses
        return [_wronged(each, wrong.wrongness, chance) if isinstance(each, Reply) else each for each in responses]

    async def _carry_out(
        self, node: str, messages: Sequence[Message], arrives: float, takes: float
    ) -> Sequence[Response]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(takes)
        while (pause := self.schedule.of(node, "pause", loop.time())) is not None:
            await asyncio.sleep(min(pause.until, 1e9) - loop.time())
        if self._death(node, arrives, loop.time()) is not None:
            return [Gone(node, "is dead")] * len(messages)
        responses = self.members[node].handle_all(messages)
        if self.schedule.of(node, "twice", loop.time()) is not None:
            responses = self.members[node].handle_all(messages)
        if not self.schedule.layer:
            return responses
        # On virtual time nodes compute as fast as the schedule says; routes depend on it, and are to be repeated.
        return [
            replace(response, seconds=self.schedule.layer * len(message.visits))
            if isinstance(response, Reply) and isinstance(message, Hop)
            else response
            for message, response in zip(messages, responses, strict=True)
        ]

    async def close(self) -> None: ...

    def _seconds(self, node: str, messages: Sequence[Message], chance: random.Random, now: float) -> float:
        schedule = self.schedule
        evaluations = max(len(each.visits) if isinstance(each, Hop) else 0 for each in messages)
        slow = schedule.of(node, "slow", now)
        usual = (schedule.hop + schedule.layer * evaluations) * chance.lognormvariate(0.0, schedule.jitter)
        return usual + (0.0 if slow is None else slow.seconds)

    def _death(self, node: str, first: float, last: float) -> Fault | None:
        deaths = [fault for fault in self.schedule.faults if fault.node == node and fault.kind == "die"]
        for fault in deaths:
            if fault.at <= last and self._deaths.get(node) != fault:
                self._deaths[node] = fault
                self.members[node].restart()
        return next((fault for fault in deaths if fault.at <= last and first < fault.until), None)


def _wronged(reply: Reply, wrongness: Wrongness, chance: random.Random) -> Reply:
    return replace(reply, state=_wrong_array(reply.state, wrongness, chance))


def _wrong_array(state: Array, wrongness: Wrongness, chance: random.Random) -> Array:
    match wrongness:
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


class _Jumping(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everything waits for something that no event of virtual time will bring")
            self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, in seconds from 0. It waits for no other thread and no other process."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now
