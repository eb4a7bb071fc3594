"""Fine-tune models on tasks, also under plans, and compare them with chance.

The columns of a row identify what it describes:

    variant, seed, tuning_seed    one fine-tuning run of a pretrained model; the interval is over test examples
    variant, seed                 a pretrained model: mean and Student t interval over its fine-tuning runs
    variant                       a variant: mean and Student t interval over its pretrained models

If there is only one run (or model), its interval is used. `CHANCE` is the score of the most common training label. Rows
of plans have a `plan` (Sun et al. 2024, "Transformer Layers as Painters", appendix A.9). Rows of task "all" have the
`mean` over a suite, and (condition `NORMALIZED`) `mean` and `median` on a scale from chance to the original model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from layerwise.data.suites.classification import ClassificationTask
from layerwise.errors import DataError
from layerwise.measure.interventions.sweep import plan_records
from layerwise.measure.language.task_summary import (
    ChanceScale,
    chance_scale,
    normalized_rows,
    summary_rows,
    task_rows,
)
from layerwise.measure.stats.seeds import average_rows
from layerwise.plan import Member, Plan
from layerwise.results import Rows, Run, Score
from layerwise.results.checked import read_json_file, to_dataclass
from layerwise.results.run import write_whole
from layerwise.results.vocabulary import ALL, CHANCE, LEARNING_CURVE
from layerwise.runner.opening import describe_numerics
from layerwise.stack.load import resolve_device
from layerwise.train.fine_tuning import FineTuningConfig, FineTuningResult, Inspection, fine_tune, settings_for

PREDICTIONS = "predictions"
_FILES = ("config.json", "*.safetensors", "tokenizer*", "vocab.*", "merges.txt", "special_tokens_map.json")

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class FineTunedModel:
    """A model to fine-tune, also under the plans of `members` (of which the first is the identity plan).

    `variant` is its training variant. Weights whose names end in one of `frozen` are not trained.
    """

    variant: str
    seed: int
    location: Path | str
    members: tuple[Member, ...] = ()
    frozen: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.variant}/{self.seed}"

    @property
    def plans(self) -> tuple[Plan, ...]:
        plans = dict.fromkeys(member.plan for member in self.members)
        return tuple(plans)[1:]


def run_task(
    models: Sequence[FineTunedModel],
    task: ClassificationTask,
    settings: FineTuningConfig,
    run: Run,
    *,
    plan: Plan | None = None,
    seeds: int,
    progress: Progress,
    device: str,
) -> list[Score]:
    """Fine-tune every model on a task with `seeds` seeds, under a plan if given, and store and return the rows."""
    rows: list[list[list[Score]]] = []
    curves: list[Score] = []
    for model in models:
        pieces = []
        for seed in range(seeds):
            used, outcome = fine_tune_model(
                model, task, settings, seed, plan=plan, keep=run.folder / PREDICTIONS, progress=progress, device=device
            )
            columns: dict[str, Any] = {"variant": model.variant, "seed": model.seed, "tuning_seed": seed}
            columns |= {} if plan is None else {"plan": str(plan)}
            pieces.append([replace(row, **columns) for row in task_rows(used, outcome.labels, outcome.predictions)])
            curves += [replace(row, **columns) for row in _curve_rows(used, outcome)]
        rows.append(pieces)
    averaged = add_means(rows)
    store_rows(run, averaged)
    # A curve replaces that of the same fine-tuning run, which can have other steps.
    store_rows(run, curves, attrgetter("task", "variant", "seed", "tuning_seed", "plan"))
    if plan is None:
        store_note(run, task.measure, task.name, describe_task(task, settings))
    else:  # only now: plans without rows look like an unfinished sweep
        run.store.add_plans(plan_records(member for model in models for member in model.members))
    return averaged


def fine_tune_model(
    model: FineTunedModel,
    task: ClassificationTask,
    settings: FineTuningConfig,
    seed: int,
    *,
    plan: Plan | None = None,
    keep: Path | None = None,
    progress: Progress,
    device: str,
    inspect_model: Inspection | None = None,
) -> tuple[ClassificationTask, FineTuningResult]:
    """Fine-tune a model, or read the stored result in the folder `keep`.

    `inspect_model` is called with the fine-tuned model, but not if the result was stored.

    Returns:
        The task with as many examples as the settings allow, and the result.
    """
    settings = replace(settings_for(task, settings), frozen=model.frozen)
    task = task.limited(settings.training_limit, settings.test_limit)
    path = None
    if keep is not None:
        how, under_plan = describe_numerics(resolve_device(device), "float32"), None if plan is None else str(plan)
        parts = [_identity(model.location), task.digest, task.metric, asdict(settings), seed, how, under_plan]
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
        path = keep / task.measure / _plain(task.name) / f"{_plain(model.label)}.{seed}-{key}.json"
    if path is not None and path.is_file():
        return task, to_dataclass(FineTuningResult, read_json_file(path), str(path))
    under = "" if plan is None else f"{plan} of "
    label = f"{under}{model.label} {task.name}, fine-tuning {seed}"
    outcome = fine_tune(
        model.location,
        task,
        settings,
        seed,
        plan=plan,
        progress=lambda step, steps: progress(label, step / steps),
        device=device,
        inspect_model=inspect_model,
    )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(asdict(outcome)) + "\n").encode())
    return task, outcome


def _curve_rows(task: ClassificationTask, outcome: FineTuningResult) -> list[Score]:
    rows = [Score(LEARNING_CURVE, task.metric, point.score, task=task.name, step=point.step) for point in outcome.curve]
    if outcome.step_seconds is not None:
        rows.append(Score(LEARNING_CURVE, "step_seconds", outcome.step_seconds, task=task.name))
    return rows


def add_means(rows: Sequence[Sequence[Sequence[Score]]]) -> list[Score]:
    models = [_mean(pieces, tuning_seed=None) for pieces in rows]
    variants: dict[tuple[str | None, str | None], list[list[Score]]] = {}
    for model in models:
        if model:
            variants.setdefault((model[0].variant, model[0].plan), []).append(model)
    return [
        *(row for pieces in rows for piece in pieces for row in piece),
        *(row for model in models for row in model),
        *(row for pieces in variants.values() for row in _mean(pieces, seed=None)),
    ]


def describe_task(task: ClassificationTask, settings: FineTuningConfig) -> str:
    used = task.limited(settings.training_limit, settings.test_limit)
    available = {split: len(examples) for split, examples in task.sets.items()}
    counts = {split: len(examples) for split, examples in used.sets.items()}
    listed = ", ".join(
        f"{split} {count}" + (f" of {available[split]}" if count < available[split] else "")
        for split, count in counts.items()
    )
    caveat = "" if counts == available else "; not comparable with published results, which use all examples"
    return f"{task.name}: {task.source + '; ' if task.source else ''}examples: {listed}{caveat}."


def _mean(pieces: Sequence[Sequence[Score]], **columns: None) -> list[Score]:
    return [average_rows(same, **columns) for same in zip(*pieces, strict=True)]


def store_rows(run: Run, rows: Sequence[Score], key: Callable[[Score], Hashable] = attrgetter("key")) -> None:
    if not rows:
        return
    measure, new = rows[0].measure, {key(row) for row in rows}
    others = [row for row in run.store.scores(measure) if key(row) not in new]
    run.store.replace_scores(measure, [*others, *rows])


def store_note(run: Run, measure: str, task: str, note: str) -> None:
    text = [each.text for each in run.store.notes(measure) if not each.text.startswith(f"{task}: ")]
    run.store.replace_notes(measure, [*text, note])


def _identity(location: Path | str) -> str:
    folder = Path(location)
    if not folder.is_dir():
        return str(location)
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _FILES for path in folder.glob(pattern)}):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def check_one_depth(models: Sequence[FineTunedModel]) -> None:
    depths = {len(model.members[0].plan.steps()): model.label for model in models if model.members}
    if len(depths) > 1:
        shown = ", ".join(f"{label} has {depth} layers" for depth, label in sorted(depths.items()))
        raise DataError(
            f"plans require models with the same number of layers, but {shown}. Evaluate each model separately."
        )


def store_summary(
    models: Sequence[FineTunedModel], tasks: Sequence[ClassificationTask], run: Run, *, seeds: int
) -> None:
    """Store the means over the tasks of a suite, also on a scale from chance (0) to the original model (1).

    Models that were fine-tuned on only some of the tasks are omitted.
    """
    measure = tasks[0].measure
    stored = Rows(run.store.scores(measure)).where(condition=None)
    pieces: list[list[list[Score]]] = []
    for model in models:
        scales = _scales(stored.where(variant=model.variant, seed=None, tuning_seed=None, plan=None), tasks)
        for plan in (None, *model.plans):
            scores = stored.where(variant=model.variant, seed=model.seed, plan=None if plan is None else str(plan))
            rows = [
                _summarize(scores.where(tuning_seed=seed), tasks, {} if plan is None else scales)
                for seed in range(seeds)
            ]
            if all(rows):
                pieces.append(rows)
    store_rows(run, add_means(pieces))
    if len(tasks) > 1:
        listed = ", ".join(f"{task.name} ({task.metric})" for task in tasks)
        store_note(run, measure, ALL, f"{ALL}: the mean is over {listed}.")


def _scales(stored: Rows, tasks: Sequence[ClassificationTask]) -> dict[str, ChanceScale]:
    original, chance = _find_scores(stored, tasks), _find_scores(stored, tasks, CHANCE)
    scales = {name: chance_scale(row, chance[name]) for name, row in original.items() if name in chance}
    return {name: scale for name, scale in scales.items() if scale is not None}


def _summarize(stored: Rows, tasks: Sequence[ClassificationTask], scales: Mapping[str, ChanceScale]) -> list[Score]:
    scores = _find_scores(stored, tasks)
    if len(scores) < len(tasks):
        return []
    return [*summary_rows(scores, _find_scores(stored, tasks, CHANCE)), *normalized_rows(scores, scales)]


def _find_scores(stored: Rows, tasks: Sequence[ClassificationTask], against: str | None = None) -> dict[str, Score]:
    rows = {task.name: stored.one(task=task.name, metric=task.metric, against=against) for task in tasks}
    return {name: row for name, row in rows.items() if row is not None}
