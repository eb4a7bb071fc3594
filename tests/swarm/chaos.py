"""What a swarm must do under any schedule of faults, as laws that a drawn schedule is held to.

every request ends: with as many tokens as were asked for, or with a refusal that the quorum explains
tokens are those of the undisturbed model where every layer lies on a node that nothing happens to
the same where an answer says that nothing was lost; else the tokens before the loss are the undisturbed ones
recompute: the tokens after the loss are what `generate` writes under the plan of the answer, from there
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch

from contracts.specimen import DEPTH, EOS, VOCABULARY, build
from contracts.zoo import named
from layerwise import load
from layerwise.errors import BelowQuorum
from layerwise.stack import Stack
from layerwise.swarm.answer import Answer
from layerwise.swarm.gathering import gather
from layerwise.swarm.nodes.local import Fault, Kind, Schedule, Wrongness
from layerwise.swarm.settings import OnLoss, SwarmSettings
from layerwise.swarm.swarm import Swarm

NODES = tuple(f"node-{number}" for number in range(4))
KINDS: tuple[Kind, ...] = ("pause", "slow", "twice", "lost")
SETTINGS = SwarmSettings(first_deadline=0.2, spot_share=0.0)

LOST_AFTER = 5.0
"""Seconds of virtual time after which a request is lost: 25 deadlines."""

Ending = Answer | BelowQuorum | TimeoutError
Tokens = tuple[int, ...]


@cache
def decoder() -> Stack:
    """Five layers of a random decoder, each of which matters."""
    return load(build(named("llama")))


@cache
def prompt(number: int) -> Tokens:
    """One of the prompts."""
    chance = random.Random(number)
    return tuple(chance.randrange(EOS + 1, VOCABULARY) for _ in range(3 + number))


@cache
def undisturbed(ids: Tokens, new: int, plan: str = f"0-{DEPTH - 1}") -> Tokens:
    """The tokens that the whole model adds to these in one process, under a plan."""
    stack, given = decoder(), torch.tensor([ids])
    mask = torch.ones_like(given)  # a padding token that the model wrote itself is a token like any other
    with stack.under(plan), torch.inference_mode():
        written = stack.model.generate(given, attention_mask=mask, max_new_tokens=new, do_sample=False)  # type: ignore[operator]
    return tuple(written[0, len(ids) :].tolist())


def drawn_schedule(seed: int, deaths: int, returns: bool, kinds: Sequence[Kind]) -> Schedule:
    """`deaths` nodes die within 30 ms, and come back if `returns`; of each further kind of fault one node has one for
    a time. What ends lasts 0.1 to 30 times as long, drawn evenly in the logarithm."""
    chance = random.Random(f"schedule/{seed}")
    seconds, low, high = 0.03, 0.1, 30.0

    def drawn(node: str, kind: Kind, *, ends: bool = True) -> Fault:
        at = chance.uniform(0.0, seconds)
        until = at + seconds * low * (high / low) ** chance.random() if ends else float("inf")
        wrongness: Wrongness = chance.choice(("noise", "zeros", "flip"))
        return Fault(node, kind, at, until, chance.uniform(0.0, 0.5), wrongness)

    faults = [drawn(node, "die", ends=returns) for node in chance.sample(NODES, deaths)]
    faults += [drawn(chance.choice(NODES), kind) for kind in kinds]
    return Schedule(tuple(faults), jitter=0.2, seed=seed)


@dataclass(frozen=True)
class Trial:
    """One schedule of faults, and the requests that it meets."""

    seed: int
    schedule: Schedule
    on_loss: OnLoss
    requests: int
    new: int
    health_seconds: float

    @classmethod
    def drawn(cls, seed: int) -> Trial:
        """The trial of a seed: no fault, one, or many; one request or several at once."""
        chance = random.Random(f"trial/{seed}")
        kinds = [kind for kind in KINDS if chance.random() < 0.25]
        schedule = drawn_schedule(seed, chance.choice((0, 1, 1, 2, 2, 3)), chance.random() < 0.6, kinds)
        return cls(
            seed,
            schedule,
            chance.choice(("keep", "recompute")),
            chance.choice((1, 1, 1, 2)),
            chance.randint(3, 5),
            chance.choice((0.012, 3.0, 3.0)),
        )


def run(
    trial: Trial, settings: SwarmSettings = SETTINGS, nodes: int = len(NODES), replicas: int = 2
) -> tuple[Swarm, list[Ending]]:
    """The swarm after a trial, and how each request ended."""
    settings = replace(settings, on_loss=trial.on_loss, health_seconds=trial.health_seconds)
    swarm = gather(decoder(), nodes, replicas, settings=settings, schedule=trial.schedule)

    async def one(number: int) -> Ending:
        try:
            async with asyncio.timeout(LOST_AFTER):
                return await swarm.answer(prompt(number), max_new_tokens=trial.new, do_sample=False)
        except (BelowQuorum, TimeoutError) as ending:
            return ending

    async def main() -> list[Ending]:
        return await asyncio.gather(*(one(number) for number in range(trial.requests)))

    with swarm:
        return swarm, swarm.run(main())


def untouched(faults: Sequence[Fault]) -> frozenset[str]:
    """The nodes that nothing happens to. A hop that comes twice is no harm."""
    return frozenset(NODES) - {fault.node for fault in faults if fault.kind != "twice"}


def violations(trial: Trial, settings: SwarmSettings = SETTINGS) -> list[str]:
    """The laws that a trial breaks, in words."""
    swarm, endings = run(trial, settings)
    safe = frozenset().union(*(swarm.members[node].layers for node in untouched(trial.schedule.faults)))
    covered = len(safe) == DEPTH
    wrong = []
    for number, ending in enumerate(endings):
        right = undisturbed(prompt(number), trial.new)
        where = f"seed {trial.seed}, request {number} ({trial.on_loss})"
        if isinstance(ending, TimeoutError):
            wrong.append(f"{where} was lost: nothing came within {LOST_AFTER:g} s")
            continue
        if isinstance(ending, BelowQuorum):
            if len(safe) >= swarm.quorum.layers:  # type: ignore[operator]
                wrong.append(f"{where} was refused, though {len(safe)} layers lie on nodes that nothing happens to")
            continue
        tokens, kept = ending.tokens, ending.from_token
        if len(tokens) != trial.new and tokens[-1:] != (EOS,):
            wrong.append(f"{where} has {len(tokens)} tokens of {trial.new}")
        elif covered and (tokens != right or ending.missing):
            wrong.append(f"{where} wrote {tokens} and not {right}; missing: {ending.missing}")
        elif not ending.missing and not kept and tokens != right:
            wrong.append(f"{where} says that nothing was lost, and wrote {tokens} and not {right}")
        elif trial.on_loss == "recompute":
            after = (
                undisturbed(prompt(number) + tokens[:kept], len(tokens) - kept, ending.plan) if tokens[kept:] else ()
            )
            if tokens[kept:] != after:
                wrong.append(f"{where} wrote {tokens[kept:]} from token {kept} under {ending.plan} and not {after}")
    return wrong
