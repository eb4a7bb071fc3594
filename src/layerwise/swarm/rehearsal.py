"""Many requests at once on one swarm, how each ended, and how long the slowest token may take.

A token that meets a lost node waits for the deadline of a hop, perhaps for that of a check, and then for the replay:
the node that takes over runs every pass that its predecessor ran, behind the other requests that it takes over as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from layerwise.errors import SwarmError
from layerwise.swarm.answer import Answer, Decoding
from layerwise.swarm.deadlines import FACTOR, FIRST_PER_WORK
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.swarm import Swarm


@dataclass(frozen=True, slots=True)
class Load:
    """What a swarm carries: requests at once, the `depth` of the model and the most layers on one node, the longest
    prompt and the tokens added to it; `hop` and `layer` are the most seconds that either takes."""

    streams: int
    depth: int
    most_held: int
    prompt: int
    new: int
    hop: float
    layer: float

    @property
    def undisturbed(self) -> float:
        """The most seconds of a token where nothing fails: every layer a hop of its own, behind all other requests."""
        return self.streams * self.depth * (self.hop + self.layer)

    @property
    def replay(self) -> float:
        """The most seconds until a node has run again, for every request, all passes on all layers that it holds."""
        return self.streams * (self.hop + self.new * self.most_held * self.layer)

    def deadline(self, settings: SwarmSettings) -> float:
        """The most seconds that a hop, or a replay, is waited for before its node is late."""
        work = self.most_held * (self.prompt + self.new) * self.streams
        known = FACTOR * (self.undisturbed + self.replay)
        return max(settings.hop_floor, settings.first_deadline + FIRST_PER_WORK * work, known)


def slowest_token(load: Load, settings: SwarmSettings, losses: int) -> float:
    """The bound, in seconds, for a token during which at most so many nodes are lost.

    losses x (2 deadlines + replay) + the token itself, twice where it is begun again
    """
    return losses * (2 * load.deadline(settings) + load.replay) + 2 * load.undisturbed


@dataclass(frozen=True, slots=True)
class Ended:
    """One request: the answer or the reason of its refusal, and what its tokens, or its single pass, took."""

    seconds: tuple[float, ...]
    answer: Answer | None
    refusal: str = ""
    output: Tensor | None = None


def answer_all(swarm: Swarm, prompts: Sequence[Sequence[int]], decoding: Decoding, streams: int) -> tuple[Ended, ...]:
    """Every prompt answered, `streams` at a time; the n-th result is that of the n-th prompt."""
    return _in_streams(swarm, prompts, streams, lambda ids, request: swarm.stream(ids, decoding, request=request))


def run_all(swarm: Swarm, inputs: Sequence[Mapping[str, Any]], streams: int) -> tuple[Ended, ...]:
    """Every single forward pass, `streams` at a time; the n-th result is that of the n-th inputs."""

    async def one(given: Mapping[str, Any], request: str) -> AsyncIterator[Tensor | Answer]:
        for item in await swarm.single_pass(given, request=request):
            yield item

    return _in_streams(swarm, inputs, streams, one)


async def _ended(items: AsyncIterator[Any]) -> Ended:
    """How a request ended that gives tokens one by one, or one output, and its answer last."""
    clock = asyncio.get_running_loop().time
    seconds: list[float] = []
    last, answer, output = clock(), None, None
    try:
        async for item in items:
            if isinstance(item, Answer):
                answer = item
            else:
                seconds.append(clock() - last)
                last = clock()
                output = item
    except SwarmError as refusal:
        return Ended((*seconds, clock() - last), None, str(refusal))
    return Ended(tuple(seconds), answer, output=output if isinstance(output, Tensor) else None)


def _in_streams(
    swarm: Swarm, requests: Sequence[Any], streams: int, begin: Callable[[Any, str], AsyncIterator[Any]]
) -> tuple[Ended, ...]:
    """How each request ended that `begin` begins, under a name of its own, `streams` at a time."""
    ended: dict[int, Ended] = {}
    left = iter(enumerate(requests))

    async def stream() -> None:
        for number, each in left:
            ended[number] = await _ended(begin(each, f"rehearsal-{number}"))

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(streams, len(requests))):
                group.create_task(stream())

    swarm.run(main())
    return tuple(ended[number] for number in range(len(requests)))
