"""The models and suites of `layerwise evaluate`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.data.model_location import location_of
from layerwise.data.records import walk_files
from layerwise.data.suites.classification import ClassificationTask
from layerwise.data.suites.generated import SUITE as GENERATED_PAIRS
from layerwise.data.suites.generated import generate_mixed_signals, generate_pairs
from layerwise.data.suites.glue import FORMS, read_tasks
from layerwise.data.suites.minimal_pairs import SUITES as PUBLISHED
from layerwise.data.suites.minimal_pairs import PairSet, find_pairs, read_pairs
from layerwise.data.suites.msgs import read_msgs
from layerwise.errors import DataError, ModelError, RunError, near_matches
from layerwise.results import Manifest, Run
from layerwise.results.training_record import FILE, TrainingRecord
from layerwise.results.vocabulary import ATTRIBUTION
from layerwise.runner.arguments import ModelLike
from layerwise.runner.minimal_pairs import EvaluatedModel, Opened
from layerwise.runner.opening import make_manifest, open_stack, quiet_transformers
from layerwise.runner.plan_choice import PlanChoice
from layerwise.runner.reporter import Reporter
from layerwise.runner.training_runs import finished_models
from layerwise.stack import Stack, weight_hash
from layerwise.studies.evaluate.attribution import SENTENCES, TASK
from layerwise.studies.evaluate.finetuned_tasks import FineTunedModel
from layerwise.studies.evaluate.verb import FINE_TUNED
from layerwise.train.load_trained import open_trained


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
    """Read the tasks `names` (default: all) of the suites that models are fine-tuned on."""
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


FAMILY = "evaluation"
"""Family in the manifest of an evaluation of a single model."""

HELD = (".scalars",)
"""Suffixes of the names of parameters that are layer weights."""


@dataclass(frozen=True)
class Subjects:
    """The evaluated models by label (VARIANT/SEED): all trained models of the run `folder`, or the single `stack`."""

    models: Mapping[str, FineTunedModel]
    manifest: Manifest
    loading: Mapping[str, Any]
    folder: Path | None = None
    stack: Stack | None = None

    def open_stack(self, label: str) -> Stack:
        return self.stack or _open_trained(Path(self.models[label].location), self.loading)

    def open(self, label: str) -> Opened:
        return _with_tokenizer(self.open_stack(label))

    def list_models(self, labels: tuple[str, ...] = ()) -> list[EvaluatedModel]:
        """Return the models named `labels` (default: all), which are loaded when they are evaluated."""
        return [
            EvaluatedModel(model.variant, model.seed, partial(self.open, label))
            for label, model in self.models.items()
            if not labels or label in labels
        ]


def find_run(folder: Path, loading: Mapping[str, Any]) -> Subjects:
    quiet_transformers()
    models = finished_models(folder)
    if not models:
        raise RunError(f"{folder} has no finished model in VARIANT/seed-N/model. Train one, or pass a model.")
    with Run.open(folder) as run:
        manifest = run.manifest
    members = {
        each.label: FineTunedModel(each.variant, each.seed, each.folder, frozen=_find_held(each.folder))
        for each in models
    }
    return Subjects(members, manifest, loading, folder)


def _find_held(model: Path) -> tuple[str, ...]:
    """Return the suffixes of weights that were frozen in pretraining, which fine-tuning freezes, too."""
    record = TrainingRecord.read(model)
    settings = {} if record is None else record.recipe.get("pretraining", {})
    return HELD if settings.get("frozen_layer_weights") else ()


def open_single(
    model: ModelLike,
    selection: SuiteChoice,
    reporter: Reporter,
    loading: Mapping[str, Any],
    choice: PlanChoice,
    *,
    seed: int,
    settings: Mapping[str, Any],
) -> Subjects:
    quiet_transformers()
    is_named = isinstance(model, str | Path)
    if not is_named and (selection.tasks or selection.attributes):
        raise DataError("fine-tuning must load the model again. Pass its name or folder instead of a loaded model.")
    path = Path(str(model)).expanduser() if is_named else Path()
    is_trained = is_named and (path / FILE).is_file()
    stack = _open_trained(path, loading) if is_trained else open_stack(model, reporter, **loading)
    _with_tokenizer(stack)
    name = str(model) if is_named else stack.source.name
    record = TrainingRecord.read(path) if is_named else None
    variant, seed_of_model = (Path(name).name, 0) if record is None else (record.variant, record.seed)
    single = FineTunedModel(variant, seed_of_model, location_of(name))
    manifest = make_manifest(
        stack,
        weight_hash(stack.model),
        corpus="; ".join(selection.origins),
        corpus_hash=selection.digest,
        documents=selection.examples,
        tokens=selection.examples,
        window=1,
        families=(FAMILY, *choice.describe()),
        tasks=selection.names,
        seed=seed,
        settings=settings,
    )
    return Subjects({single.label: single}, manifest, loading, stack=stack)


def _open_trained(folder: Path, loading: Mapping[str, Any]) -> Stack:
    return open_trained(folder, device=loading["device"], dtype=loading["dtype"]).stack


def _with_tokenizer(stack: Stack) -> Opened:
    if stack.tokenizer is None:
        raise ModelError(f"{stack.source.name} must include a tokenizer. Pass one with --tokenizer PATH.")
    return stack.model, stack.tokenizer
