"""Phases of a pretraining: short segments in large batches first, long ones in small batches at the end.

The first 90 % of the steps read short segments, and the rest segments four times as long, a quarter as many: as many
tokens a step. Which segments a step reads is decided by (seed, phase, step) alone, so a training resumes in either
phase.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from layerwise.data.text.span_masking import Draw
from layerwise.errors import TrainError


@dataclass(frozen=True, slots=True)
class CurriculumPhase:
    """Steps from `first` up to `end`, each of `batch` of the `segments`, of at most `length` tokens.

    Raises `TrainError` for fewer segments than a batch.
    """

    length: int
    batch_size: int
    first: int
    end: int
    segments: int

    def __post_init__(self) -> None:
        if self.segments < self.batch_size:
            raise TrainError(
                f"the text to train on gives {self.segments:,} segment(s) of up to {self.length} tokens, fewer than "
                f"one batch of {self.batch_size:,}: give more text, or a --batch-size of at most "
                f"{self.segments:,} for segments of this length"
            )


class Batches(Sampler[list[Draw]]):
    """The batches of one process, step after step: a Trainer's batch sampler for the whole training.

    A step is divided among `passes` on each of `processes`; slot s of a step is the same example, with the same masks,
    however it is divided. `steps` are read in order. Raises `TrainError` when a batch does not divide.
    """

    def __init__(
        self, phases: Sequence[CurriculumPhase], seed: int, *, passes: int = 1, processes: int = 1, process: int = 0
    ) -> None:
        for phase in phases:
            if phase.batch_size % (passes * processes):
                raise TrainError(
                    f"a batch of {phase.batch_size} segments of length {phase.length} does not fall into equal pieces "
                    f"for {processes} process(es) x {passes} pass(es); choose a batch whose quarter is a multiple of "
                    f"{passes * processes}"
                )
        self.phases = tuple(phases)
        self.seed = seed
        self.passes = passes
        self.processes = processes
        self.process = process
        self.steps: Sequence[int] = range(self.phases[0].first, self.phases[-1].end)

    def __len__(self) -> int:
        return self.passes * len(self.steps)

    def __iter__(self) -> Iterator[list[Draw]]:
        for step in self.steps:
            number = next(number for number, phase in enumerate(self.phases) if step < phase.end)
            for run in range(self.passes):
                yield self._piece(number, self.phases[number], step, run)

    def _piece(self, number: int, phase: CurriculumPhase, step: int, run: int) -> list[Draw]:
        size = phase.batch_size // (self.passes * self.processes)
        start = (run * self.processes + self.process) * size
        return [self._draw(number, phase, step, slot) for slot in range(start, start + size)]

    def _draw(self, number: int, phase: CurriculumPhase, step: int, slot: int) -> Draw:
        epoch, index = divmod((step - phase.first) * phase.batch_size + slot, phase.segments)
        return Draw(phase.length, int(_order(self.seed, number, epoch, phase.segments)[index]), step, slot)


@lru_cache(maxsize=4)
def _order(seed: int, phase: int, epoch: int, segments: int) -> NDArray[np.int64]:
    return np.random.default_rng((seed, phase, epoch)).permutation(segments)


def rate_at(step: int, steps: int, warmup: int, floor: float) -> float:
    """The learning rate of `step` (from 0) as a share of the highest: up in a line, then down in half a cosine.

        (step + 1) / warmup                                                        while step < warmup
        floor + (1 - floor) (1 + cos(pi (step - warmup) / (steps - warmup))) / 2   afterwards

    >>> [round(rate_at(step, 10, 2, 0.1), 3) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.55, 0.1]
    """
    if step < warmup:
        return (step + 1) / warmup
    share = min(1.0, (step - warmup) / max(1, steps - warmup))
    return floor + (1 - floor) * (1 + math.cos(math.pi * share)) / 2
