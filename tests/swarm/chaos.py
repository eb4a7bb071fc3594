"""Laws of a swarm under random faults: every request ends, degraded tokens are named, recomputation is exact.

With `spot_share=1` every call is compared; no token takes longer than `bound_token_seconds`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise

import torch

from contracts.specimen import DEPTH, EOS, VOCABULARY, build
from contracts.zoo import named
from layerwise import load
from layerwise.errors import SwarmError
from layerwise.stack import Stack
from layerwise.swarm.answer import Answer, Decoding
from layerwise.swarm.gathering import gather
from layerwise.swarm.node_records import Latencies
from layerwise.swarm.nodes.local import Corruption, Fault, FaultKind, Schedule
from layerwise.swarm.router import MAX_FAILURES
from layerwise.swarm.settings import OnLoss, Quorum, SwarmSettings
from layerwise.swarm.swarm import Swarm

NODES = tuple(f"node-{number}" for number in range(4))
KINDS: tuple[FaultKind, ...] = ("pause", "slow", "twice", "lost")
STREAMS = 2
SLOW = 0.5
"""Maximum extra seconds per call of a slow node."""

LOSS_FAULTS: tuple[FaultKind, ...] = ("fail", "wrong")
"""Faults that can remove a node's layers; lateness cannot."""

Tokens = tuple[int, ...]


@cache
def decoder() -> Stack:
    return load(build(named("llama")))


@cache
def prompt(number: int) -> Tokens:
    chance = random.Random(number)
    return tuple(chance.randrange(EOS + 1, VOCABULARY) for _ in range(3 + number))


@cache
def reference_tokens(ids: Tokens, new: int, plan: str = f"0-{DEPTH - 1}") -> Tokens:
    stack, given = decoder(), torch.tensor([ids])
    mask = torch.ones_like(given)  # a padding token that the model wrote itself is a token like any other
    with stack.under(plan), torch.inference_mode():
        written = stack.model.generate(given, attention_mask=mask, max_new_tokens=new, do_sample=False)  # type: ignore[operator]
    return tuple(written[0, len(ids) :].tolist())


def draw_schedule(seed: int, failures: int, returns: bool, kinds: Sequence[FaultKind]) -> Schedule:
    """Draw failures within 30 ms and one temporary fault of each other kind (durations log-uniform, 0.1x to 30x)."""
    chance = random.Random(f"schedule/{seed}")
    seconds, low, high = 0.03, 0.1, 30.0

    def draw(node: str, kind: FaultKind, *, ends: bool = True) -> Fault:
        at = chance.uniform(0.0, seconds)
        until = at + seconds * low * (high / low) ** chance.random() if ends else float("inf")
        corruption: Corruption = chance.choice(("noise", "zeros", "flip"))
        return Fault(node, kind, at, until, chance.uniform(0.0, SLOW), corruption)

    faults = [draw(node, "fail", ends=returns) for node in chance.sample(NODES, failures)]
    faults += [draw(chance.choice(NODES), kind) for kind in kinds]
    return Schedule(tuple(faults), jitter=0.2, seed=seed)


@dataclass(frozen=True)
class Trial:
    seed: int
    schedule: Schedule
    on_loss: OnLoss = "keep"
    spot_share: float = 0.0
    new: int = 4
    quorum: int = 1
    health_seconds: float = 0.05

    @classmethod
    def draw(cls, seed: int) -> Trial:
        chance = random.Random(f"honesty/{seed}")
        kinds: list[FaultKind] = [kind for kind in KINDS if chance.random() < 0.25]
        wrong = chance.choice((0, 0, 0, 0, 1, 2))
        kinds += ["wrong"] * wrong
        schedule = draw_schedule(seed, chance.choice((0, 1, 1, 2, 2, 3)), chance.random() < 0.7, kinds)
        return cls(
            seed,
            schedule,
            chance.choice(("keep", "recompute")),
            float(wrong > 0),
            chance.randint(3, 12),
            chance.choice((1, 3)),
            chance.choice((0.012, 0.05, 3.0)),
        )

    @property
    def settings(self) -> SwarmSettings:
        return SwarmSettings(
            on_loss=self.on_loss,
            spot_share=self.spot_share,
            quorum=Quorum(layers=self.quorum),
            first_deadline=0.5,
            min_deadline=0.5,
            health_seconds=self.health_seconds,
        )

    def run(self) -> tuple[Swarm, tuple[Ended, ...]]:
        swarm = gather(decoder(), len(NODES), 2, settings=self.settings, schedule=self.schedule)
        with swarm:
            return swarm, answer_all(swarm, [prompt(number) for number in range(3)], Decoding(self.new), STREAMS)

    @property
    def bound(self) -> float:
        load = Load(STREAMS, DEPTH, 3, len(prompt(2)), self.new, 0.01 + SLOW, 0.01)
        return bound_token_seconds(load, self.settings, MAX_FAILURES * len(NODES))


def find_violations(trial: Trial) -> list[str]:
    swarm, ended = trial.run()
    lost = {fault.node for fault in trial.schedule.faults if fault.kind in LOSS_FAULTS}
    alive = frozenset(chain.from_iterable(swarm.members[node].layers for node in set(NODES) - lost))
    may_lack = set(range(DEPTH)) - {layer.number for layer in alive}
    wrong = []
    for number, each in enumerate(ended):
        where = f"seed {trial.seed}, request {number} ({trial.on_loss})"
        if trial.spot_share == 0 and max(each.seconds) > trial.bound:
            wrong.append(f"{where} waited {max(each.seconds):.1f} s for a token, more than {trial.bound:.1f} s")
        if each.answer is None:
            if len(alive) >= trial.quorum:
                wrong.append(f"{where} was refused: {each.refusal}")
            continue
        wrong += [f"{where} {text}" for text in find_false_reports(each.answer, prompt(number), may_lack, trial)]
    return wrong


def find_false_reports(answer: Answer, ids: Tokens, may_lack: set[int], trial: Trial) -> Iterator[str]:
    spans, tokens, right = answer.spans, answer.tokens, reference_tokens(ids, trial.new)
    if len(tokens) != trial.new and tokens[-1:] != (EOS,):
        yield f"has {len(tokens)} tokens of {trial.new}"
    if [spans[0].start, spans[-1].stop] != [0, len(tokens)] or any(a.stop != b.start for a, b in pairwise(spans)):
        yield f"has spans that do not cover {len(tokens)} tokens: {spans}"
    named = {number for span in spans if not span.is_complete for number in range(span.start, span.stop)}
    off = {number for number, token in enumerate(tokens) if right[number : number + 1] != (token,)}
    if not off <= named:
        yield f"wrote {tokens} and not {right}, and names {sorted(named)} alone: {spans}"
    wrong = {fault.node for fault in trial.schedule.faults if fault.kind == "wrong"}
    lacked: set[int] = set()
    for span in spans:
        if not may_lack >= set(span.missing) or not set(span.doubted) <= wrong or not set(span.earlier) <= lacked:
            yield f"names without cause {span}"
        if not span.is_complete and not (span.missing or span.doubted or span.earlier):
            yield f"names nothing in {span}"
        lacked |= set(span.missing)
    kept = answer.from_token
    if trial.on_loss == "recompute" and trial.spot_share == 0 and tokens[kept:]:
        after = reference_tokens(ids + tokens[:kept], len(tokens) - kept, answer.plan)
        if tokens[kept:] != after:
            yield f"wrote {tokens[kept:]} from token {kept} under {answer.plan} and not {after}"


@dataclass(frozen=True, slots=True)
class Load:
    """`streams` concurrent requests on a model of `depth` layers, and the limits of its nodes and calls."""

    streams: int
    depth: int
    most_held: int
    prompt: int
    new: int
    call: float
    layer: float


def bound_token_seconds(load: Load, settings: SwarmSettings, losses: int) -> float:
    """Bound a token's seconds: losses x (silence + replay + the token once more) + the token itself."""
    undisturbed = load.streams * load.depth * (load.call + load.layer)
    replay = load.streams * (load.call + load.most_held * load.layer)
    latencies = Latencies(settings.first_deadline, settings.min_deadline)
    silence = latencies.timeout(load.most_held * (load.prompt + load.new)) + latencies.timeout(0)
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
