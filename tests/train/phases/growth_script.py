"""Growth training by one process of several, which are all told what to train where.

Writes `losses-RANK.json`, `ran-RANK.json` (which layers ran in every step) and `rested-RANK.json` (which weights every
step left as they were, to the bit) into the run folder. With `stop` the training ends without warning before that step,
and is then taken up again; the files are those of the second part. With `sharded` every process holds a part of each
weight, and of a part alone it says what rested.
"""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from layerwise.plan.schedule import GrowthSchedule
from layerwise.train.training import train
from train.distributed_script import SHARDED
from train.phases.test_runner import EVENTFUL, EVERYTHING, SETTINGS, STEPS, Seen, Stopped, base, recipe_of, watched
from train.sharding_on_processors import sharding_on_processors
from train.tiny_models import tiny_llama, tiny_text

UNCACHED = replace(EVENTFUL, name="uncached", phases=tuple(replace(each, cached=False) for each in EVENTFUL.phases))
SCHEDULES: dict[str, GrowthSchedule] = {"eventful": EVENTFUL, "everything": EVERYTHING, "uncached": UNCACHED}
WATCHED = replace(SETTINGS, gradient_accumulation_steps=2, evals=6)
"""A checkpoint behind every second step."""


def train_watched(
    folder: Path, schedule: str, stop: int | None = None, *, ends: bool = False, sharded: bool = False
) -> None:
    """Train the tiny model in `folder`, and note what every step did; `ends` leaves what was stopped to others."""
    seen = Seen(stop)
    if stop is not None:
        with suppress(Stopped):
            _part(folder, schedule, seen, sharded)
    if not ends:
        seen = Seen()
        _part(folder, schedule, seen, sharded)
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    rested = {
        step: sorted(name for name, old in before.items() if torch.equal(old, seen.after[step][name]))
        for step, before in seen.before.items()
    }
    for name, value in {"losses": seen.losses, "ran": seen.ran, "rested": rested}.items():
        (folder / f"{name}-{rank}.json").write_text(json.dumps(value))


def _part(folder: Path, schedule: str, seen: Seen, sharded: bool) -> None:
    with watched(seen), sharding_on_processors() if sharded else nullcontext():
        chosen = recipe_of(SCHEDULES[schedule], WATCHED, STEPS)
        arguments = {"use_cpu": True, **(SHARDED if sharded else {})}
        train(base(tiny_llama), tiny_text(), chosen, 1, folder, arguments=arguments)


def train_all(trainings: dict[Path, dict[str, Any]]) -> None:
    """One training after the other, each in its folder."""
    warnings.simplefilter("ignore")
    for folder, options in trainings.items():
        train_watched(folder, **options)
