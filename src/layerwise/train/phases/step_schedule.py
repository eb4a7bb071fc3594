"""The timetable of a growth training: what runs and what learns in every pass, and at what rate, by its step alone.

A schedule for so many steps, and a seed, leave nothing to chance: which layers of a `sample` learn is drawn by (seed,
phase, number of the draw), which layers stochastic depth leaves out by (seed, phase, step, pass). So a training that
resumes inside a phase goes on as it would have, and every process of a distributed one does the same, without a word
between them. The controls of a study have the phases of the schedule they are a control of, and so its draws.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from layerwise.plan import Plan
from layerwise.plan.schedule import GrowthSchedule, Phase

Curve = Callable[[int], float]


@dataclass(frozen=True)
class StepSchedule:
    """A schedule, laid over so many `steps` and drawn by `seed`. Steps count from 0, and so do the passes within one.

    >>> halves = GrowthSchedule("halves", 2, (Phase("top", 0.5, (1,)), Phase("all", 0.5, (0, 1), rate=0.1)))
    >>> table = StepSchedule(halves, steps=8, seed=0)
    >>> table.phase(3).name, table.phase(4).name, table.factor(4, curve=lambda step: 0.5)
    ('top', 'all', 0.05)
    """

    schedule: GrowthSchedule
    steps: int
    seed: int

    @cached_property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        return self.schedule.bounds(self.steps)

    def number(self, step: int) -> int:
        return next(number for number, (first, end) in enumerate(self.bounds) if first <= step < end)

    def phase(self, step: int) -> Phase:
        return self.schedule.phases[self.number(step)]

    def begins(self, step: int) -> bool:
        return any(step == first for first, _ in self.bounds)

    def ends(self, step: int) -> bool:
        return any(step == end - 1 for _, end in self.bounds)

    def learning(self, step: int) -> tuple[int, ...]:
        phase = self.phase(step)
        if phase.sample is None:
            return phase.trains
        draw = (step - self.bounds[self.number(step)][0]) // phase.every
        chance = random.Random(f"{self.seed}/{phase.name}/learning/{draw}")
        return tuple(sorted(chance.sample(phase.trains, phase.sample)))

    def resolve(self, step: int, number_of_pass: int = 0) -> Phase:
        """The phase as one pass runs it, with all draws made: `present` names the layers that run, `trains` those of
        them that learn, and nothing is left to chance.

        A draw that would leave no layer to run, or nothing to learn, is drawn again.
        """
        phase, learning = self.phase(step), self.learning(step)
        running = phase.running(self.schedule.depth)
        if phase.drop != (0.0, 0.0):
            chance = random.Random(f"{self.seed}/{phase.name}/running/{step}/{number_of_pass}")
            lost = phase.dropped(self._progress(step), self.schedule.depth)
            around = phase.embedding or phase.head
            running = _kept(running, lost, chance, needed=running if around else learning)
        return replace(
            phase,
            trains=tuple(layer for layer in learning if layer in running),
            present=running,
            sample=None,
            every=1,
            drop=(0.0, 0.0),
            redraw=(),
            scale=(),
            copies=(),
        )

    def whole(self, step: int) -> Plan:
        return Plan.of(self.phase(step).running(self.schedule.depth))

    def factor(self, step: int, curve: Curve) -> float:
        """The factor of the learning rate at `step`; `curve` is that of the training.

        The shape `run` has the curve as it is; the others begin anew with the phase: they rise over its warm-up, and
        then stay at 1 or fall to 0 at its end, in a line or half a cosine. `rate` multiplies them all.
        """
        last = min(step, self.steps - 1)  # a scheduler also reads the step after the last
        phase, (first, end) = self.phase(last), self.bounds[self.number(last)]
        if phase.shape == "run":
            return curve(step) * phase.rate
        rising = min(round(phase.warmup * (end - first)), end - first - 1)
        if step - first < rising:
            return (step - first) / rising * phase.rate
        gone = (step - first - rising) / (end - first - rising)
        falling = {"constant": 1.0, "linear": 1.0 - gone, "cosine": 0.5 * (1.0 + math.cos(math.pi * gone))}
        return falling[phase.shape] * phase.rate

    def _progress(self, step: int) -> float:
        first, end = self.bounds[self.number(step)]
        return (step - first) / max(1, end - 1 - first)


def _kept(
    layers: tuple[int, ...], lost: tuple[float, ...], chance: random.Random, needed: tuple[int, ...]
) -> tuple[int, ...]:
    while True:
        kept = tuple(layer for layer, share in zip(layers, lost, strict=True) if chance.random() >= share)
        if not set(needed).isdisjoint(kept):
            return kept
