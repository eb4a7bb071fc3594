"""Benchmarks by fine-tuning: pre-trained models on GLUE, MSGS or a task of one's own, as rows with chance beside them.

    ARM/SEED.F    one fine-tuning of one pre-trained model; the interval is over test examples
    ARM/SEED      one pre-trained model: the mean over its fine-tunings F; the interval is Student's over them
    ARM           one architecture: the mean over its pre-trained models; the interval is Student's over those

The three intervals answer three questions, and only the last one says what another pre-training would give. Where
there is a single one to average over, the row has the interval below it. Every row of a metric has a row
`METRIC@chance`: what always giving the commonest training label would score on the same test examples.

A model under a plan is `PLAN of ARM/SEED` (`layerwise.experiments.evaluation.plans`).

What each fine-tuned model answered is kept (`RUN/predictions/MEASURE/TASK/ARM-SEED.F-KEY.json`) under a key that
stands for the model's files, the plan, the task's examples, the settings and the threads. The rows are made from those
files every time, so an interrupted run resumes with the next fine-tuning, and a finished one computes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from layerwise.data.suites.classification import Task
from layerwise.experiments.provenance import in_words
from layerwise.measure.language.task_scores import task_score
from layerwise.measure.stats.seeds import over_seeds
from layerwise.plan import Plan
from layerwise.plan.subject import under_plan
from layerwise.results import Run
from layerwise.results.checked_json import read, value_of
from layerwise.results.rows import Score
from layerwise.results.run import write_whole
from layerwise.stack.load import resolve_device
from layerwise.train.finetune.fine_tuning import FineTuningConfig, FineTuningResult, Inspection, fine_tune

PREDICTIONS = "predictions"
LEARNING_CURVE = "learning_curve"
CHANCE = "@chance"
_FILES = ("config.json", "*.safetensors", "tokenizer*", "vocab.*", "merges.txt", "special_tokens_map.json")

Progress = Callable[[str, int, int], None]
"""Told what is being fine-tuned, its step, and its steps at most."""

# What came later is left out of the key at its default, so that answers which were kept before it are read.
_LATER = (("train", "all"), ("evals", 0))


def run_benchmarks(
    models: Sequence[tuple[str, Path | str]],
    tasks: Sequence[Task],
    settings: FineTuningConfig,
    run: Run,
    *,
    seeds: int = 3,
    progress: Progress | None = None,
    device: str = "auto",
) -> list[Score]:
    """Every model, as (label, folder), fine-tuned on every task with `seeds` seeds; the rows, which `run` keeps too.

    Labels are `ARM/SEED`, or any name for a model that is no arm's. After every task its rows are in the store, and
    its note (`described`) with them; rows of models and tasks that are not evaluated here stay there.
    """
    result: list[Score] = []
    for task in tasks:
        result += run_task(models, task, settings, run, seeds=seeds, progress=progress, device=device)
        store_note(run, task.measure, task.name, described(task, settings))
    return result


def run_task(
    models: Sequence[tuple[str, Path | str]],
    task: Task,
    settings: FineTuningConfig,
    run: Run,
    *,
    plan: Plan | None = None,
    seeds: int = 3,
    progress: Progress | None = None,
    device: str = "auto",
) -> list[Score]:
    """Every model, as (label, folder), fine-tuned on one task under a plan; the rows, which `run` keeps too.

    The learning curves, where they are taken, are in the store with them.
    """
    rows: dict[str, list[list[Score]]] = {}
    curves: list[Score] = []
    for label, location in models:
        for seed in range(seeds):
            subject = under_plan(plan, f"{label}.{seed}")
            used, outcome = fine_tuned(
                location, task, settings, seed, label=label, plan=plan, keep=run.folder / PREDICTIONS,
                progress=progress, device=device,
            )  # fmt: skip
            rows.setdefault(under_plan(plan, label), []).append(rows_of(subject, used, outcome))
            curves += curve_rows(subject, used, outcome)
    own = averaged(rows)
    store_rows(run, own)
    _store_curves(run, task.name, curves)
    return own


def fine_tuned(
    location: Path | str,
    task: Task,
    settings: FineTuningConfig,
    seed: int,
    *,
    label: str,
    plan: Plan | None = None,
    keep: Path | None = None,
    progress: Progress | None = None,
    device: str = "auto",
    inspect_model: Inspection | None = None,
) -> tuple[Task, FineTuningResult]:
    """The task with as many examples as the settings allow, and what the model answered to it.

    With a folder to `keep` them in, answers that are there already are read instead of computed.
    `inspect_model` looks at a model that is fine-tuned here, and is not called where the answers are read.
    """
    task = task.limited(settings.training_limit, settings.test_limit)
    path = (
        None
        if keep is None
        else kept_file(keep, location, task, settings, seed, label, in_words(resolve_device(device), "float32"), plan)
    )
    if path is not None and path.is_file():
        return task, _read(path)
    report_progress = None
    if progress is not None:
        what = f"{under_plan(plan, label)} {task.name}, fine-tuning {seed}"

        def report_progress(step: int, steps: int) -> None:
            progress(what, step, steps)

    outcome = fine_tune(
        location, task, settings, seed, plan=plan, progress=report_progress, device=device, inspect_model=inspect_model
    )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(asdict(outcome)) + "\n").encode())
    return task, outcome


def rows_of(subject: str, task: Task, outcome: FineTuningResult) -> list[Score]:
    """What one model's answers are worth: for each metric of the task its value over test examples, and chance."""
    examples = len(outcome.labels)
    rows = []
    for metric in task.metrics:
        own = task_score(task, metric, outcome.labels, outcome.predictions)
        rows += [
            Score(task.measure, subject, task.name, metric, own.value, own.low, own.high, documents=examples),
            Score(task.measure, subject, task.name, metric + CHANCE, own.chance, documents=examples),
        ]
    return rows


def curve_rows(subject: str, task: Task, outcome: FineTuningResult) -> list[Score]:
    """The learning curve of a fine-tuning, where it was taken: the score on the selection set at each step.

    learning_curve  ARM/SEED.F  TASK step N  METRIC          the task's main metric
    learning_curve  ARM/SEED.F  TASK         step_seconds    the median of a step
    """
    rows = [
        Score(LEARNING_CURVE, subject, f"{task.name} step {point.step}", task.metric, point.score)
        for point in outcome.curve
    ]
    if outcome.step_seconds is not None:
        rows.append(Score(LEARNING_CURVE, subject, task.name, "step_seconds", outcome.step_seconds))
    return rows


def averaged(rows: dict[str, list[list[Score]]]) -> list[Score]:
    """The rows of one task's fine-tunings by model label, then those of the models, then those of their arms."""
    models = {label: _mean(label, pieces) for label, pieces in rows.items()}
    arms: dict[str, list[list[Score]]] = {}
    for label, own in models.items():
        arm, slash, _ = label.rpartition("/")
        if slash:
            arms.setdefault(arm, []).append(own)
    return [
        *(row for pieces in rows.values() for own in pieces for row in own),
        *(row for own in models.values() for row in own),
        *(row for arm, pieces in arms.items() for row in _mean(arm, pieces)),
    ]


def described(task: Task, settings: FineTuningConfig) -> str:
    """The note of a task: where its sets are from, how many examples were used, and what that makes of the number."""
    used = task.limited(settings.training_limit, settings.test_limit)
    whole = {split: len(examples) for split, examples in task.sets.items()}
    counts = {split: len(examples) for split, examples in used.sets.items()}
    listed = ", ".join(
        f"{split} {count}" + (f" of {whole[split]}" if count < whole[split] else "") for split, count in counts.items()
    )
    beside = "" if counts == whole else "; a number made with fewer than the task has is not the published task's"
    return f"{task.name}: {task.source + '; ' if task.source else ''}examples: {listed}{beside}."


def _mean(subject: str, pieces: Sequence[Sequence[Score]]) -> list[Score]:
    """The mean of rows that agree in task and metric; `pieces` hold the same rows in the same order."""
    rows = []
    for same in zip(*pieces, strict=True):
        first = same[0]
        values = [row.value for row in same]
        low, high = over_seeds(values, first.metric, [(row.low, row.high) for row in same])
        rows.append(replace(first, subject=subject, value=float(np.mean(values)), low=low, high=high))
    return rows


def store_rows(run: Run, rows: Sequence[Score]) -> None:
    """Put `rows`, all of one measure, in place of those for the same subjects, tasks and metrics."""
    if not rows:
        return
    measure = rows[0].measure
    new = {(row.subject, row.task, row.metric) for row in rows}
    kept = [row for row in run.store.scores(measure) if (row.subject, row.task, row.metric) not in new]
    run.store.replace_scores(measure, [*kept, *rows])


def _store_curves(run: Run, task: str, rows: Sequence[Score]) -> None:
    """Put curves of a task in place of the earlier ones of the same fine-tunings, whose steps may have been others."""
    if not rows:
        return
    subjects = {row.subject for row in rows}
    kept = [
        row
        for row in run.store.scores(LEARNING_CURVE)
        if not (row.subject in subjects and (row.task == task or row.task.startswith(f"{task} step ")))
    ]
    run.store.replace_scores(LEARNING_CURVE, [*kept, *rows])


def store_note(run: Run, measure: str, task: str, note: str) -> None:
    """Put the note of a task in place of its last one."""
    text = [each.text for each in run.store.notes(measure) if not each.text.startswith(f"{task}: ")]
    run.store.replace_notes(measure, [*text, note])


def kept_file(
    keep: Path,
    location: Path | str,
    task: Task,
    settings: FineTuningConfig,
    seed: int,
    label: str,
    how: str,
    plan: Plan | None,
) -> Path:
    """Where the answers of one fine-tuning are kept."""
    used = {name: value for name, value in asdict(settings).items() if (name, value) not in _LATER}
    parts = [_identity(location), task.digest, task.metric, used, seed, how, *(() if plan is None else (str(plan),))]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
    return keep / task.measure / _plain(task.name) / f"{_plain(label)}.{seed}-{key}.json"


def _identity(location: Path | str) -> str:
    """SHA-256 over the files that a model and its tokenizer are read from; a hub id stands for itself."""
    folder = Path(location)
    if not folder.is_dir():
        return str(location)
    files = {path: path.stat() for path in _matching(folder)}
    return _digest(tuple((path, each.st_size, each.st_mtime_ns) for path, each in files.items()))


@lru_cache(maxsize=64)
def _digest(files: tuple[tuple[Path, int, int], ...]) -> str:
    """SHA-256 over files of these paths, sizes and times: each is read once, however many plans a model runs."""
    digest = hashlib.sha256()
    for path, size, _ in files:
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _matching(folder: Path) -> Iterable[Path]:
    return sorted({path for pattern in _FILES for path in folder.glob(pattern)})


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def _read(path: Path) -> FineTuningResult:
    return value_of(FineTuningResult, read(path), str(path))
