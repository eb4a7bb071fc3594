"""Growth schedule by step: the layers that run, the layers that are trained, and the learning rate.

Random draws depend only on the seed, the phase and the step (or on the pass within the step, for stochastic depth).
A training run therefore resumes exactly, and all processes agree without communication.
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
    """Growth schedule over `steps` optimizer steps. Steps, and forward passes within a step, are counted from 0.

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
        """Return the phase of one forward pass after its random choices (`sample` and `drop`) are made.

        In the returned phase, the layers in `present` run, and those in `trains` are trained. If a random choice leaves
        no layer to run, or nothing to train, it is drawn again.
        """
        phase, learning = self.phase(step), self.learning(step)
        running = phase.running(self.schedule.depth)
        if phase.drop != (0.0, 0.0):
            chance = random.Random(f"{self.seed}/{phase.name}/running/{step}/{number_of_pass}")
            lost = phase.dropped(self._progress(step), self.schedule.depth)
            around = phase.embedding or phase.head
            running = _draw_running(running, lost, chance, needed=running if around else learning)
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
        """Return the learning rate at `step`, relative to the peak.

        With the shape `run`, it follows `curve`, the schedule of the entire training run. With any other shape, it
        starts again in every phase: it rises during the warmup, then stays at 1 (`constant`) or falls to 0 (`linear`,
        `cosine`). The result is multiplied by the `rate` of the phase.
        """
        last = min(step, self.steps - 1)  # a scheduler also calls the step after the last
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


def _draw_running(
    layers: tuple[int, ...], lost: tuple[float, ...], chance: random.Random, needed: tuple[int, ...]
) -> tuple[int, ...]:
    while True:
        kept = tuple(layer for layer, share in zip(layers, lost, strict=True) if chance.random() >= share)
        if not set(needed).isdisjoint(kept):
            return kept
