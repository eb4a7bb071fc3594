"""Phases of pretraining: short segments in large batches, then long segments in small batches.

By default, the first 90 % of the steps read short segments. The rest read a quarter as many segments, which are four
times as long. The segments of a step depend only on (seed, phase, step), so a training run resumes exactly.
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
    """Phase of pretraining, from step `first` to step `end` (exclusive).

    Each step reads `batch_size` segments of up to `length` tokens, out of `segments`.

    Raises:
        TrainError: If there are fewer segments than `batch_size`.
    """

    length: int
    batch_size: int
    first: int
    end: int
    segments: int

    def __post_init__(self) -> None:
        if self.segments < self.batch_size:
            raise TrainError(
                f"--batch-size must be at most {self.segments:,}, because the training text has that many segments of "
                f"up to {self.length} tokens, got {self.batch_size:,}. Pass more text, or a smaller batch size."
            )


class Batches(Sampler[list[Draw]]):
    """Batch sampler of one process for all steps of a training run.

    The batch of a step is divided equally over the processes, and on each process over gradient accumulation passes.
    Its examples and masks do not depend on the number of processes and passes.

    Raises:
        TrainError: If a batch cannot be divided equally.
    """

    def __init__(
        self, phases: Sequence[CurriculumPhase], seed: int, *, passes: int = 1, processes: int = 1, process: int = 0
    ) -> None:
        for phase in phases:
            if phase.batch_size % (passes * processes):
                raise TrainError(
                    f"batch_size must be a multiple of {4 * passes * processes} (4 x {processes} processes x {passes} "
                    f"passes), got {phase.batch_size} segments of length {phase.length}."
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
    """Return the learning rate at `step` (from 0) relative to the peak: linear warmup, then cosine decay.

        (step + 1) / warmup                                                        while step < warmup
        floor + (1 - floor) (1 + cos(pi (step - warmup) / (steps - warmup))) / 2   afterwards

    >>> [round(rate_at(step, 10, 2, 0.1), 3) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.55, 0.1]
    """
    if step < warmup:
        return (step + 1) / warmup
    share = min(1.0, (step - warmup) / max(1, steps - warmup))
    return floor + (1 - floor) * (1 + math.cos(math.pi * share)) / 2
