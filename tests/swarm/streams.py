"""Many requests at once on one swarm, how each ended, and the longest that a token may take."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from layerwise.errors import SwarmError
from layerwise.swarm.answer import Answer, Decoding
from layerwise.swarm.deadlines import Latencies
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.swarm import Swarm


@dataclass(frozen=True, slots=True)
class Load:
    """`streams` concurrent requests on a model of `depth` layers, and the limits of its nodes and calls."""

    streams: int
    depth: int
    most_held: int
    prompt: int
    new: int
    hop: float
    layer: float


def slowest_token(load: Load, settings: SwarmSettings, losses: int) -> float:
    """Bound a token's seconds: losses x (silence + replay + the token once more) + the token itself."""
    undisturbed = load.streams * load.depth * (load.hop + load.layer)
    replay = load.streams * (load.hop + load.most_held * load.layer)
    latencies = Latencies(settings.first_deadline, settings.hop_floor)
    silence = latencies.patience(load.most_held * (load.prompt + load.new)) + latencies.patience(0)
    return losses * (silence + replay + undisturbed) + undisturbed


@dataclass(frozen=True, slots=True)
class Ended:
    seconds: tuple[float, ...]
    answer: Answer | None
    refusal: str = ""


def answer_all(swarm: Swarm, prompts: Sequence[Sequence[int]], decoding: Decoding, streams: int) -> tuple[Ended, ...]:
    ended: dict[int, Ended] = {}
    left = iter(enumerate(prompts))

    async def stream() -> None:
        for number, ids in left:
            ended[number] = await _end(swarm, ids, decoding, f"request-{number}")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(streams, len(prompts))):
                group.create_task(stream())

    swarm.run(main())
    return tuple(ended[number] for number in range(len(prompts)))


async def _end(swarm: Swarm, ids: Sequence[int], decoding: Decoding, request: str) -> Ended:
    clock = asyncio.get_running_loop().time
    seconds: list[float] = []
    last, answer = clock(), None
    try:
        async for item in swarm.stream(ids, decoding, request=request):
            if isinstance(item, Answer):
                answer = item
            else:
                seconds.append(clock() - last)
                last = clock()
    except SwarmError as refusal:
        return Ended((*seconds, clock() - last), None, str(refusal))
    return Ended(tuple(seconds), answer)
