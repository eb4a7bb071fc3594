"""A training given seconds in place of steps: how many steps it takes.

To compare models at equal time, each gets the steps that fit into that time, and the schedule of that many steps. A
step is timed before the training begins, in both phases, on the machine that is to train. A training that resumes keeps
the number that its first session measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
from torch import nn
from transformers.trainer import TRAINER_STATE_NAME

from layerwise.data.text.span_masking import MaskedSegments, Padding
from layerwise.errors import RunError
from layerwise.results.checked import read
from layerwise.stack.placement import device_of
from layerwise.train.checkpoint_dir import last_checkpoint
from layerwise.train.pretrain.curriculum import Batches, CurriculumPhase

_TIMED = 4
"""Steps of a phase that are timed, after one that only warms up."""


def steps_that_fit(seconds: float, paces: Sequence[tuple[float, float]]) -> int:
    """The steps that take `seconds`, at least 1; `paces` are (share of the steps, seconds a step) of every phase.

    >>> steps_that_fit(60.0, [(0.9, 0.5), (0.1, 1.5)])
    100
    """
    return max(1, round(seconds / sum(share * pace for share, pace in paces)))


def promised_steps(folder: Path) -> int | None:
    """The steps of the training that the last checkpoint in `folder` is of; `None` without one."""
    checkpoint = last_checkpoint(folder)
    if checkpoint is None:
        return None
    state = Path(checkpoint) / TRAINER_STATE_NAME
    try:
        return int(read(state)["max_steps"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{state} does not say how many steps there are; remove {checkpoint} to go on") from error


def seconds_a_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    examples: MaskedSegments,
    collate: Padding,
    phase: CurriculumPhase,
    *,
    passes: int,
    processes: int,
) -> float:
    """The median seconds of a step of `phase`, as one of `processes` runs it; the model is trained meanwhile."""
    device = device_of(model)
    batches = iter(Batches([phase], examples.seed, passes=passes, processes=processes))
    taken = []
    for _ in range(min(_TIMED + 1, phase.end - phase.first)):
        begun = time.perf_counter()
        for _ in range(passes):
            batch = collate(examples.__getitems__(next(batches)))
            loss = model(**{name: tensor.to(device) for name, tensor in batch.items()}).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # an accelerator may still be at work
        taken.append(time.perf_counter() - begun)
    return median(taken[1:] or taken)
