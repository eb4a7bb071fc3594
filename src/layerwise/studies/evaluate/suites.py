"""Suites of an evaluation: minimal pairs and fine-tuned tasks, generated here or read from files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from layerwise.data.records import walk_files
from layerwise.data.suites.classification import ClassificationTask
from layerwise.data.suites.generated import SUITE as GENERATED_PAIRS
from layerwise.data.suites.generated import generate_mixed_signals, generate_pairs
from layerwise.data.suites.glue import FORMS, read_tasks
from layerwise.data.suites.minimal_pairs import SUITES as PUBLISHED
from layerwise.data.suites.minimal_pairs import PairSet, find_pairs, read_pairs
from layerwise.data.suites.msgs import read_msgs
from layerwise.errors import DataError, near_matches
from layerwise.results.vocabulary import ATTRIBUTION
from layerwise.studies.evaluate.attribution import SENTENCES, TASK
from layerwise.studies.evaluate.verb import FINE_TUNED


@dataclass(frozen=True, slots=True)
class SuiteChoice:
    names: tuple[str, ...]
    pairs: tuple[PairSet, ...]
    tasks: tuple[ClassificationTask, ...]

    @property
    def attributes(self) -> bool:
        return ATTRIBUTION in self.names

    @property
    def origins(self) -> list[str]:
        names = [*(each.origin for each in self.pairs), *(task.name for task in self.tasks)]
        return [*names, TASK] if self.attributes else names

    @property
    def examples(self) -> int:
        counted = sum(len(each.pairs) for each in self.pairs) + sum(len(task.test) for task in self.tasks)
        return counted + SENTENCES * self.attributes

    @property
    def digest(self) -> str:
        parts = [suite.digest for suite in self.pairs] + [task.digest for task in self.tasks]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def read_pair_sets(
    names: Sequence[str], folder: Path | None, limit: int | None, password: str | None
) -> tuple[PairSet, ...]:

    def read(name: str) -> PairSet:
        if name == GENERATED_PAIRS:
            return generate_pairs()
        if name in PUBLISHED:
            return find_pairs(name, folder or Path(), password=password)
        return read_pairs([Path(name)], password=password)

    return tuple(read(name).first(limit) for name in names if name not in FINE_TUNED)


def read_fine_tuned_tasks(
    suites: Sequence[str], folder: Path | None, names: Sequence[str], seed: int
) -> tuple[ClassificationTask, ...]:
    """Read the named (default: all) tasks to fine-tune on."""
    tasks: list[ClassificationTask] = []
    folder = folder or Path()
    if "glue" in suites:
        selected = [name.casefold() for name in names if name.casefold() in FORMS]
        tasks += read_tasks(folder, selected or None, seed=seed)
    if "msgs" in suites:
        named = (path for path in walk_files(folder) if path.name.startswith("msgs") and path.is_dir())
        tasks += read_msgs(next(named, folder), seed=seed)
    if "msgs-ours" in suites:
        tasks += generate_mixed_signals().values()
    by_name = {task.name.casefold(): task for task in tasks}
    for name in names:
        if name.casefold() not in by_name:
            raise DataError(f"unknown task {name!r}; {near_matches(name, by_name)}")
    return tuple(by_name[name.casefold()] for name in names) if names else tuple(tasks)
