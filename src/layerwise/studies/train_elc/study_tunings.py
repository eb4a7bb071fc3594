"""The fine-tunings of a study of layer weights, stored as in `layerwise.runner.finetuned_tasks`.

Every arm is also taught the ambiguous task, and its decisions are attributed to tokens. Rows of measure `attribution`,
per model and arm: `linguistic` and `surface` (attribution share of the feature's words; against `TOKENS` their token
shares), `preference` (their difference, less token shares) and `gap` (the largest completeness error); against
`SHUFFLED` the same for shuffled labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from layerwise.data.suites.classification import Labelled, Task
from layerwise.data.suites.generated_msgs import feature_spans, features_of
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.measure.gradients.attribution import FeatureShares, MarkedText, feature_shares
from layerwise.measure.stats.seeds import over_seeds
from layerwise.models import ElcForMaskedLM
from layerwise.models.elc.wiring import rewired
from layerwise.results import Score
from layerwise.results.checked import read, value_of
from layerwise.results.run import write_whole
from layerwise.results.training_record import MODEL
from layerwise.results.vocabulary import ATTRIBUTION, BACKBONE, LAYER_WEIGHTS, SHUFFLED, TOKENS
from layerwise.runner.finetuned_tasks import (
    PREDICTIONS,
    FineTunedModel,
    Progress,
    fine_tuned,
    kept_file,
    run_benchmarks,
)
from layerwise.runner.opening import in_words
from layerwise.runner.reporter import Reporter
from layerwise.runner.steps import UnitSession
from layerwise.stack.load import resolve_device
from layerwise.studies.train_elc import study_arms as study
from layerwise.studies.train_elc.trainings import Pretrainings
from layerwise.train.fine_tuning import FineTuningConfig

REWIRED = "rewired"
"""The folder of models that were given layer weights after their pretraining."""

_HELD = (".scalars",)


@dataclass(frozen=True, slots=True)
class TuningSet:
    """Models that are taught the same tasks by the same settings."""

    models: Sequence[FineTunedModel]
    tasks: Sequence[Task]
    settings: FineTuningConfig


def tuning_sets(
    pretrainings: Pretrainings, run: Path, taught: Sequence[tuple[Sequence[Task], FineTuningConfig]]
) -> list[TuningSet]:
    arms = [recipe.arm for recipe in pretrainings.recipes]
    free: list[FineTunedModel] = []
    held: list[FineTunedModel] = []
    for seed in range(pretrainings.seeds):
        models = {arm: run / arm / f"seed-{seed}" / MODEL for arm in (*arms, study.AT_EQUAL_SECONDS)}
        free += [FineTunedModel(arm, seed, model) for arm, model in models.items() if arm != study.FROZEN]
        free.append(FineTunedModel(study.REWIRED, seed, _rewired(models[BACKBONE], run, seed)))
        held.append(FineTunedModel(study.KEPT, seed, models[LAYER_WEIGHTS]))
        held.append(FineTunedModel(study.FROZEN, seed, models[study.FROZEN]))
    return [
        TuningSet(models, tasks, replace(settings, frozen=frozen))
        for tasks, settings in taught
        for models, frozen in ((free, ()), (held, _HELD))
    ]


def _rewired(model: Path, run: Path, seed: int) -> Path:
    folder = run / REWIRED / f"{BACKBONE}-{seed}"
    if not (folder / "tokenizer.json").is_file():
        rewired(ElcForMaskedLM.from_pretrained(model)).save_pretrained(folder)
        load_tokenizer(model).save_pretrained(folder)
    return folder


def tune(session: UnitSession, sets: Sequence[TuningSet], device: str) -> None:
    run, progress = session.run, _progress(session.reporter)
    attributed = [
        row
        for own in sets
        for model in own.models
        for task in own.tasks
        if task.name == study.ATTRIBUTED
        for row in attribution_rows([model], task, own.settings, run.folder, progress=progress, device=device)
    ]
    run.store.replace_scores(ATTRIBUTION, with_arms(attributed))
    for own in sets:
        run_benchmarks(own.models, own.tasks, own.settings, run, seeds=1, progress=progress, device=device)


def _progress(reporter: Reporter) -> Progress:
    def progress(label: str, step: int, steps: int) -> None:
        reporter.progress(label, step / steps)

    return progress


SENTENCES = 64
"""Sentences that are attributed, of each model: an interval of an arm is over its seeds."""


def attribution_rows(
    models: Iterable[FineTunedModel],
    task: Task,
    settings: FineTuningConfig,
    folder: Path,
    *,
    progress: Progress | None = None,
    device: str = "auto",
) -> list[Score]:
    """Return the rows of every model, taught `task` with its labels and with shuffled ones; shares are stored."""
    rows: list[Score] = []
    for model in models:
        for against, each in ((None, task), (SHUFFLED, shuffled(task))):
            shares = _kept_shares(model, each, settings, folder, progress, device)
            of: dict[str, Any] = {"arm": model.arm, "seed": model.seed, "task": task.name}
            rows += [replace(row, **of) for row in model_rows(shares, against)]
    return rows


def _kept_file(model: FineTunedModel, task: Task, settings: FineTuningConfig, folder: Path, device: str) -> Path:
    how = in_words(resolve_device(device), "float32")
    return kept_file(folder / ATTRIBUTION, model, task, settings, 0, how)


def model_rows(shares: FeatureShares, against: str | None = None) -> list[Score]:
    own = {name: np.array(getattr(shares, name)) for name in ("linguistic", "surface")}
    tokens = {name: np.array(getattr(shares, f"{name}_tokens")) for name in own}
    preference = own["linguistic"] - tokens["linguistic"] - own["surface"] + tokens["surface"]
    values = [(name, against, of) for name, of in {**own, "preference": preference}.items()]
    if against is None:
        values += [(name, TOKENS, of) for name, of in tokens.items()]
    rows = []
    for metric, null, of in values:
        low, high = over_seeds(of.tolist())  # Student's interval, here over sentences
        rows.append(Score(ATTRIBUTION, metric, float(of.mean()), low, high, against=null, documents=len(of)))
    return [*rows, Score(ATTRIBUTION, "gap", shares.gap, against=against)]


def with_arms(rows: Sequence[Score]) -> list[Score]:
    of_arms: dict[tuple[str | None, str, str, str | None], list[Score]] = {}
    for row in rows:
        of_arms.setdefault((row.arm, row.task, row.metric, row.against), []).append(row)
    results = list(rows)
    for own in of_arms.values():
        values = [row.value for row in own]
        bounds = [(row.low, row.high) for row in own] if own[0].documents is not None else None
        low, high = over_seeds(values, "", bounds)
        results.append(replace(own[0], seed=None, value=float(np.mean(values)), low=low, high=high, documents=None))
    return results


def shuffled(task: Task) -> Task:
    """The task with the labels of its training and of its selection sentences permuted; the test set stays."""
    return replace(
        task,
        name=f"{task.name} shuffled",
        train=_permuted(task.train, "train"),
        selection=_permuted(task.selection, "sel"),
    )


def _permuted(examples: Sequence[Labelled], seed: str) -> tuple[Labelled, ...]:
    labels = [example.label for example in examples]
    Random(seed).shuffle(labels)
    return tuple(example._replace(label=label) for example, label in zip(examples, labels, strict=True))


def marked(task: Task, count: int = SENTENCES) -> list[MarkedText]:
    linguistic, surface = features_of(task.name.removesuffix(" shuffled"))
    return [
        MarkedText(
            example.text,
            () if linguistic is None else feature_spans(linguistic, example.text),
            () if surface is None else feature_spans(surface, example.text),
        )
        for example in task.test[:count]
    ]


def _kept_shares(
    model: FineTunedModel,
    task: Task,
    settings: FineTuningConfig,
    folder: Path,
    progress: Progress | None,
    device: str,
) -> FeatureShares:
    path = _kept_file(model, task, settings, folder, device)
    if path.is_file():
        return value_of(FeatureShares, read(path), str(path))
    shares: list[FeatureShares] = []

    def inspect_model(tuned: Any, tokenizer: Any) -> None:
        shares.append(feature_shares(tuned, tokenizer, marked(task), settings.length))

    # Where the answers are kept already, there is no model to look at, and it is fine-tuned again.
    for keep in (folder / PREDICTIONS, None):
        if not shares:
            fine_tuned(
                model, task, settings, 0, keep=keep, progress=progress, device=device, inspect_model=inspect_model
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(asdict(shares[-1])) + "\n").encode())
    return shares[-1]
