"""Laws of a swarm under drawn faults: every request ends, degraded tokens are named, recomputation is exact.

With `spot_share=1` every call is compared; no token takes longer than `slowest_token`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise

import torch

from contracts.specimen import DEPTH, EOS, VOCABULARY, build
from contracts.zoo import named
from layerwise import load
from layerwise.stack import Stack
from layerwise.swarm.answer import Answer, Decoding
from layerwise.swarm.gathering import gather
from layerwise.swarm.nodes.local import Fault, Kind, Schedule, Wrongness
from layerwise.swarm.router import MOST_FAILURES
from layerwise.swarm.settings import OnLoss, Quorum, SwarmSettings
from layerwise.swarm.swarm import Swarm
from swarm.streams import Ended, Load, answer_all, slowest_token

NODES = tuple(f"node-{number}" for number in range(4))
KINDS: tuple[Kind, ...] = ("pause", "slow", "twice", "lost")
STREAMS = 2
SLOW = 0.5
"""Maximum extra seconds per call of a slow node."""

DEADLY: tuple[Kind, ...] = ("die", "wrong")
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
def undisturbed(ids: Tokens, new: int, plan: str = f"0-{DEPTH - 1}") -> Tokens:
    stack, given = decoder(), torch.tensor([ids])
    mask = torch.ones_like(given)  # a padding token that the model wrote itself is a token like any other
    with stack.under(plan), torch.inference_mode():
        written = stack.model.generate(given, attention_mask=mask, max_new_tokens=new, do_sample=False)  # type: ignore[operator]
    return tuple(written[0, len(ids) :].tolist())


def drawn_schedule(seed: int, deaths: int, returns: bool, kinds: Sequence[Kind]) -> Schedule:
    """Draw failures within 30 ms and one temporary fault of each other kind (durations log-uniform, 0.1x to 30x)."""
    chance = random.Random(f"schedule/{seed}")
    seconds, low, high = 0.03, 0.1, 30.0

    def drawn(node: str, kind: Kind, *, ends: bool = True) -> Fault:
        at = chance.uniform(0.0, seconds)
        until = at + seconds * low * (high / low) ** chance.random() if ends else float("inf")
        wrongness: Wrongness = chance.choice(("noise", "zeros", "flip"))
        return Fault(node, kind, at, until, chance.uniform(0.0, SLOW), wrongness)

    faults = [drawn(node, "die", ends=returns) for node in chance.sample(NODES, deaths)]
    faults += [drawn(chance.choice(NODES), kind) for kind in kinds]
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
    def drawn(cls, seed: int) -> Trial:
        chance = random.Random(f"honesty/{seed}")
        kinds: list[Kind] = [kind for kind in KINDS if chance.random() < 0.25]
        wrong = chance.choice((0, 0, 0, 0, 1, 2))
        kinds += ["wrong"] * wrong
        schedule = drawn_schedule(seed, chance.choice((0, 1, 1, 2, 2, 3)), chance.random() < 0.7, kinds)
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
            hop_floor=0.5,
            health_seconds=self.health_seconds,
        )

    def run(self) -> tuple[Swarm, tuple[Ended, ...]]:
        swarm = gather(decoder(), len(NODES), 2, settings=self.settings, schedule=self.schedule)
        with swarm:
            return swarm, answer_all(swarm, [prompt(number) for number in range(3)], Decoding(self.new), STREAMS)

    @property
    def bound(self) -> float:
        load = Load(STREAMS, DEPTH, 3, len(prompt(2)), self.new, 0.01 + SLOW, 0.01)
        return slowest_token(load, self.settings, MOST_FAILURES * len(NODES))


def violations(trial: Trial) -> list[str]:
    swarm, ended = trial.run()
    dead = {fault.node for fault in trial.schedule.faults if fault.kind in DEADLY}
    alive = frozenset(chain.from_iterable(swarm.members[node].layers for node in set(NODES) - dead))
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
        wrong += [f"{where} {text}" for text in lies(each.answer, prompt(number), may_lack, trial)]
    return wrong


def lies(answer: Answer, ids: Tokens, may_lack: set[int], trial: Trial) -> Iterator[str]:
    spans, tokens, right = answer.spans, answer.tokens, undisturbed(ids, trial.new)
    if len(tokens) != trial.new and tokens[-1:] != (EOS,):
        yield f"has {len(tokens)} tokens of {trial.new}"
    if [spans[0].start, spans[-1].stop] != [0, len(tokens)] or any(a.stop != b.start for a, b in pairwise(spans)):
        yield f"has spans that do not cover {len(tokens)} tokens: {spans}"
    named = {number for span in spans if not span.is_whole for number in range(span.start, span.stop)}
    off = {number for number, token in enumerate(tokens) if right[number : number + 1] != (token,)}
    if not off <= named:
        yield f"wrote {tokens} and not {right}, and names {sorted(named)} alone: {spans}"
    wrong = {fault.node for fault in trial.schedule.faults if fault.kind == "wrong"}
    lacked: set[int] = set()
    for span in spans:
        if not may_lack >= set(span.missing) or not set(span.doubted) <= wrong or not set(span.earlier) <= lacked:
            yield f"names without cause {span}"
        if not span.is_whole and not (span.missing or span.doubted or span.earlier):
            yield f"names nothing in {span}"
        lacked |= set(span.missing)
    kept = answer.from_token
    if trial.on_loss == "recompute" and trial.spot_share == 0 and tokens[kept:]:
        after = undisturbed(ids + tokens[:kept], len(tokens) - kept, answer.plan)
        if tokens[kept:] != after:
            yield f"wrote {tokens[kept:]} from token {kept} under {answer.plan} and not {after}"
