"""Many requests at once on one swarm, and how each ended: its tokens, or its refusal, and what each token took."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from layerwise.errors import SwarmError
from layerwise.swarm.answer import Answer
from layerwise.swarm.decoding_options import Decoding
from layerwise.swarm.swarm import Swarm


@dataclass(frozen=True, slots=True)
class Ended:
    """One request: the answer or the reason of its refusal, and on the clock of the swarm when it began and what each
    of its tokens, or its single pass, took."""

    began: float
    seconds: tuple[float, ...]
    answer: Answer | None
    refusal: str = ""
    output: Tensor | None = None

    @property
    def slowest(self) -> float:
        """The seconds of its slowest token; for a refusal the time until it came."""
        return max(self.seconds, default=0.0)


def answer_all(swarm: Swarm, prompts: Sequence[Sequence[int]], decoding: Decoding, streams: int) -> tuple[Ended, ...]:
    """Every prompt answered, `streams` at a time; the n-th result is that of the n-th prompt."""

    async def one(number: int) -> Ended:
        clock = asyncio.get_running_loop().time
        began = last = clock()
        seconds: list[float] = []
        answer = None
        try:
            async for item in swarm.stream(prompts[number], decoding, request=f"rehearsal-{number}"):
                if isinstance(item, Answer):
                    answer = item
                else:
                    seconds.append(clock() - last)
                    last = clock()
        except SwarmError as refusal:
            return Ended(began, (*seconds, clock() - last), None, str(refusal))
        return Ended(began, tuple(seconds), answer)

    return swarm.run(_in_streams(one, len(prompts), streams))


def run_all(swarm: Swarm, inputs: Sequence[Mapping[str, Any]], streams: int) -> tuple[Ended, ...]:
    """Every single forward pass, `streams` at a time; the n-th result is that of the n-th inputs."""

    async def one(number: int) -> Ended:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            output, answer = await swarm.single_pass(inputs[number], request=f"rehearsal-{number}")
        except SwarmError as refusal:
            return Ended(began, (clock() - began,), None, str(refusal))
        return Ended(began, (clock() - began,), answer, output=output)

    return swarm.run(_in_streams(one, len(inputs), streams))


async def _in_streams(one: Any, count: int, streams: int) -> tuple[Ended, ...]:
    """`one(number)` for every number, `streams` at a time."""
    ended: list[Ended | None] = [None] * count
    left = iter(range(count))

    async def stream() -> None:
        for number in left:
            ended[number] = await one(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(streams, count)):
            group.create_task(stream())
    return tuple(each for each in ended if each is not None)
