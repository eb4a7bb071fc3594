"""Models of an evaluation: every finished model of a run, or a single one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.data.model_location import location_of
from layerwise.errors import DataError, ModelError, RunError
from layerwise.results import Manifest, Run
from layerwise.results.training_record import FILE, TrainingRecord
from layerwise.runner.arguments import ModelLike
from layerwise.runner.minimal_pairs import EvaluatedModel, Opened
from layerwise.runner.opening import make_manifest, open_stack, quiet_transformers
from layerwise.runner.plan_choice import PlanChoice
from layerwise.runner.reporter import Reporter
from layerwise.runner.training_runs import finished_models
from layerwise.stack import Stack, weight_hash
from layerwise.studies.evaluate.finetuned_tasks import FineTunedModel
from layerwise.studies.evaluate.suites import SuiteChoice
from layerwise.train.load_trained import open_trained

FAMILY = "evaluation"
"""Family in the manifest of a run for a single model."""

HELD = (".scalars",)
"""Suffix of the parameters that are layer weights."""


@dataclass(frozen=True)
class Subjects:
    """Models by label, `VARIANT/SEED`; those of the run `folder` are opened one by one, a single one is `stack`."""

    models: Mapping[str, FineTunedModel]
    manifest: Manifest
    loading: Mapping[str, Any]
    folder: Path | None = None
    stack: Stack | None = None

    def open_stack(self, label: str) -> Stack:
        return self.stack or _open_trained(Path(self.models[label].location), self.loading)

    def open(self, label: str) -> Opened:
        """Open a model with its tokenizer."""
        return _with_tokenizer(self.open_stack(label))

    def list_models(self, labels: tuple[str, ...] = ()) -> list[EvaluatedModel]:
        """Return the models named `labels` (default: all), which open lazily."""
        return [
            EvaluatedModel(model.arm, model.seed, partial(self.open, label))
            for label, model in self.models.items()
            if not labels or label in labels
        ]


def find_run(folder: Path, loading: Mapping[str, Any]) -> Subjects:
    quiet_transformers()
    models = finished_models(folder)
    if not models:
        raise RunError(f"{folder} has no finished model (RUN/VARIANT/seed-N/model). Train one, or pass a model.")
    with Run.open(folder) as run:
        manifest = run.manifest
    members = {
        each.label: FineTunedModel(each.arm, each.seed, each.folder, frozen=_find_held(each.folder)) for each in models
    }
    return Subjects(members, manifest, loading, folder)


def _find_held(model: Path) -> tuple[str, ...]:
    """Return the layer weights of a model if they were frozen in pretraining: fine-tuning freezes them too."""
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
    """Open a single model."""
    quiet_transformers()
    is_named = isinstance(model, str | Path)
    if not is_named and (selection.tasks or selection.attributes):
        raise DataError("fine-tuning reloads the model. Pass its name or folder instead of an opened model.")
    path = Path(str(model)).expanduser() if is_named else Path()
    is_trained = is_named and (path / FILE).is_file()
    stack = _open_trained(path, loading) if is_trained else open_stack(model, reporter, **loading)
    _with_tokenizer(stack)
    name = str(model) if is_named else stack.source.name
    record = TrainingRecord.read(path) if is_named else None
    arm, seed_of_model = (Path(name).name, 0) if record is None else (record.arm, record.seed)
    single = FineTunedModel(arm, seed_of_model, location_of(name))
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
        raise ModelError(f"{stack.source.name} has no tokenizer. Pass one with --tokenizer PATH.")
    return stack.model, stack.tokenizer
