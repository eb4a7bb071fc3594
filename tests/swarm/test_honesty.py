"""A thousand drawn schedules: an answer names every token that the whole model would not have written, and no other.

Nodes die and return, stand still, are slow, lose answers, and return noise, zeros or flipped bits; every hop is
compared where one does, which is what `spot_share=1` promises. In the same schedules no token takes longer than
`slowest_token` allows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import chain, pairwise

import pytest

from contracts.specimen import DEPTH
from layerwise.swarm.answer import COMPLETE, Answer, Decoding, TokenSpan
from layerwise.swarm.deadlines import Latencies
from layerwise.swarm.gathering import gather
from layerwise.swarm.nodes.local import Fault, Kind, Schedule
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.router import MOST_FAILURES
from layerwise.swarm.settings import OnLoss, Quorum, SwarmSettings
from layerwise.swarm.swarm import Swarm
from swarm.chaos import NODES, decoder, drawn_schedule, prompt, undisturbed
from swarm.streams import Ended, Load, answer_all, slowest_token
from tier import by_tier

RUNS = 100
"""Schedules of one test at night, which has ten of them; the other tiers have the first one, of fewer."""

STREAMS = 2
SLOW = 0.5
"""The most seconds that a hop of a slow node takes more."""

DEADLY: tuple[Kind, ...] = ("die", "wrong")
"""After what happens to a node its layers may be missing. It is not lateness."""


@dataclass(frozen=True)
class Trial:
    """One schedule, and how the swarm goes on after a loss."""

    seed: int
    schedule: Schedule
    on_loss: OnLoss
    spot_share: float
    new: int

    @classmethod
    def drawn(cls, seed: int) -> Trial:
        """The trial of a seed: no fault or several; in every third one a node or two return something else."""
        chance = random.Random(f"honesty/{seed}")
        kinds: list[Kind] = [kind for kind in ("pause", "slow", "twice", "lost") if chance.random() < 0.25]
        wrong = chance.choice((0, 0, 0, 0, 1, 2))
        kinds += ["wrong"] * wrong
        schedule = drawn_schedule(seed, chance.choice((0, 1, 1, 2, 2, 3)), chance.random() < 0.7, kinds)
        return cls(seed, schedule, chance.choice(("keep", "recompute")), float(wrong > 0), chance.randint(4, 12))

    @property
    def settings(self) -> SwarmSettings:
        """A quorum of one layer, so that next to nothing is refused."""
        return SwarmSettings(
            on_loss=self.on_loss,
            spot_share=self.spot_share,
            quorum=Quorum(layers=1),
            first_deadline=0.5,
            hop_floor=0.5,
            health_seconds=0.05,
        )

    def run(self) -> tuple[Swarm, tuple[Ended, ...]]:
        """The swarm afterwards, and how three requests ended, two at a time."""
        swarm = gather(decoder(), len(NODES), 2, settings=self.settings, schedule=self.schedule)
        with swarm:
            return swarm, answer_all(swarm, [prompt(number) for number in range(3)], Decoding(self.new), STREAMS)

    @property
    def bound(self) -> float:
        """The most seconds of a token in any schedule: every node fails as often as it may."""
        load = Load(STREAMS, DEPTH, 3, len(prompt(2)), self.new, 0.01 + SLOW, 0.01)
        return slowest_token(load, self.settings, MOST_FAILURES * len(NODES))


def violations(trial: Trial) -> list[str]:
    """What an answer of a trial says that is not so, in words, and what it does not say."""
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
            if not may_lack:
                wrong.append(f"{where} was refused: {each.refusal}")
            continue
        wrong += [
            f"{where} {text}" for text in lies(each.answer, undisturbed(prompt(number), trial.new), may_lack, trial)
        ]
    return wrong


def lies(answer: Answer, right: tuple[int, ...], may_lack: set[int], trial: Trial) -> list[str]:
    """Of one answer: what its spans do not name, and what they name without cause."""
    spans, told = answer.spans, []
    if [spans[0].start, spans[-1].stop] != [0, len(answer.tokens)] or any(
        a.stop != b.start for a, b in pairwise(spans)
    ):
        told.append(f"has spans that do not cover {len(answer.tokens)} tokens: {spans}")
    named = {number for span in spans if not span.is_whole for number in range(span.start, span.stop)}
    off = {number for number, token in enumerate(answer.tokens) if right[number : number + 1] != (token,)}
    if not off <= named:
        told.append(f"wrote {answer.tokens} and not {right}, and names {sorted(named)} alone: {spans}")
    lacked: set[int] = set()
    for span in spans:
        wrong = {fault.node for fault in trial.schedule.faults if fault.kind == "wrong"}
        if not may_lack >= set(span.missing) or not set(span.doubted) <= wrong or not set(span.earlier) <= lacked:
            told.append(f"names without cause {span}")
        if not span.is_whole and not (span.missing or span.doubted or span.earlier):
            told.append(f"names nothing in {span}")
        lacked |= set(span.missing)
    return told


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.nightly) for first in range(RUNS, 1000, RUNS))]
)
def test_an_answer_names_what_the_whole_model_would_not_have_written(first: int) -> None:
    runs = by_tier(fast=12, nightly=RUNS)
    broken = [text for seed in range(first, first + runs) for text in violations(Trial.drawn(seed))]
    assert not broken, "\n".join(broken)


def _broken() -> str:
    return "\n".join(text for seed in range(12) for text in violations(Trial.drawn(seed)))


def test_an_answer_that_names_the_last_plan_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: what was missing before the last plan is not said."""
    monkeypatch.setattr(
        SwarmRequest, "spans", lambda self, *_: (TokenSpan(0, len(self.written), str(self.live.running)),)
    )
    assert "and names [] alone" in _broken()


def test_a_layer_that_is_named_without_cause_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        SwarmRequest, "spans", lambda self, *_: (TokenSpan(0, len(self.written), "0-3", tuple(range(DEPTH)), COMPLETE),)
    )
    assert "names without cause" in _broken()


@pytest.mark.slow
def test_a_swarm_that_waits_too_long_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of a model whose nodes all stand still for half as long again as the bound."""
    bound = Trial.drawn(0).bound
    monkeypatch.setattr(Trial, "bound", bound)
    monkeypatch.setattr(Latencies, "patience", lambda self, *_: 2 * bound)
    trial = Trial(0, Schedule(tuple(Fault(node, "pause", 0.02, 1.5 * bound) for node in NODES)), "keep", 0.0, 4)
    assert f"more than {bound:.1f} s" in "\n".join(violations(trial))
