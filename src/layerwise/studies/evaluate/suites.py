"""The suites that an evaluation names: minimal pairs and fine-tuned tasks, generated here or read from files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from layerwise.data.suites.classification import Task
from layerwise.data.suites.generated_msgs import NAMES, mixed_signals
from layerwise.data.suites.generated_pairs import SUITE as GENERATED_PAIRS
from layerwise.data.suites.generated_pairs import generated_pairs
from layerwise.data.suites.glue import FORMS, read_tasks
from layerwise.data.suites.minimal_pairs import SUITES as PUBLISHED
from layerwise.data.suites.minimal_pairs import PairSet, find_pairs, read_pairs
from layerwise.data.suites.msgs import read_msgs
from layerwise.data.suites.records import below
from layerwise.errors import DataError, near_matches
from layerwise.studies.evaluate.options import FINE_TUNED, Evaluation


def pair_sets(config: Evaluation) -> tuple[PairSet, ...]:
    """The suites of minimal pairs. Raises `DataError` for files that are not where they should be."""
    return tuple(_pairs(config, name).first(config.limit) for name in config.suite if name not in FINE_TUNED)


def _pairs(config: Evaluation, name: str) -> PairSet:
    if name == GENERATED_PAIRS:
        return generated_pairs()
    if name in PUBLISHED:
        return find_pairs(name, _folder(config), password=config.password)
    return read_pairs([Path(name)], password=config.password)


def fine_tuned_tasks(config: Evaluation) -> tuple[Task, ...]:
    """Return the tasks to fine-tune on, named or all; raises `DataError` for an unknown name or missing files."""
    tasks: list[Task] = []
    folder, named_tasks = _folder(config), {name.casefold() for name in config.tasks}
    if "glue" in config.suite:
        wanted = [name.casefold() for name in config.tasks if name.casefold() in FORMS]
        tasks += read_tasks(folder, wanted or None, seed=config.seed)
    if "msgs" in config.suite:
        named = (path for path in below(folder) if path.name.startswith("msgs") and path.is_dir())
        tasks += read_msgs(next(named, folder), seed=config.seed)
    if "msgs-ours" in config.suite:
        wanted = [name for name in NAMES if name.casefold() in named_tasks]
        # Where another name was given too, all are known, so that a misspelt one is answered with what is near.
        tasks += mixed_signals(wanted if len(wanted) == len(named_tasks) else None)
    known = {task.name.casefold(): task for task in tasks}
    for name in config.tasks:
        if name.casefold() not in known:
            raise DataError(f"there is no task {name!r}; {near_matches(name, known)}")
    return tuple(known[name.casefold()] for name in config.tasks) if config.tasks else tuple(tasks)


def digest_of_suites(pairs: Sequence[PairSet], tasks: Sequence[Task]) -> str:
    parts = [suite.digest for suite in pairs] + [task.digest for task in tasks]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def _folder(config: Evaluation) -> Path:
    return config.data or Path()
