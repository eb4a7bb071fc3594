"""Many requests at once on one swarm, how each ended, and how long the slowest token may take.

A token that meets a lost node waits until that is late, or as long as its patience says where no other node is free,
and then for the replay: the node that takes over runs all tokens at once that its predecessor ran one by one, behind
the other requests that it takes over as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from layerwise.errors import SwarmError
from layerwise.swarm.answer import Answer, Decoding
from layerwise.swarm.deadlines import Latencies
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
        """The most seconds until a node has run again, for every request, all tokens on all layers that it holds."""
        return self.streams * (self.hop + self.most_held * self.layer)

    def silence(self, settings: SwarmSettings) -> float:
        """The most seconds for which a node is waited for that answers nothing, or whose answers are lost."""
        latencies = Latencies(settings.first_deadline, settings.hop_floor)
        work = self.most_held * (self.prompt + self.new)
        return latencies.patience(work) + latencies.patience(0)


def slowest_token(load: Load, settings: SwarmSettings, losses: int) -> float:
    """The bound, in seconds, for a token during which a request loses a node at most so many times.

    losses x (silence + replay + the token begun again) + the token itself
    """
    return losses * (load.silence(settings) + load.replay + load.undisturbed) + load.undisturbed


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
