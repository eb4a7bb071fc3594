"""The steps of `layerwise evaluate`: describe the work, fine-tune the models, and format the results."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerwise.data.suites.classification import ClassificationTask
from layerwise.data.suites.glue import GLUE
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.measure.contrasts.variants import ADDED, KEPT
from layerwise.measure.interventions.edge_cuts import DRAWS
from layerwise.measure.interventions.sweep import filter_runnable
from layerwise.measure.language.babylm import FILES, WEIGHTS, babylm_rows
from layerwise.models import ElcForMaskedLM
from layerwise.models.elc.wiring import rewired
from layerwise.page import ReportData
from layerwise.page.formatting import ABSENT, Format
from layerwise.page.table import Table
from layerwise.plan import EdgeCut
from layerwise.results import Rows, Run, Score
from layerwise.results.vocabulary import ATTRIBUTION, BABYLM, BACKBONE, EDGES, LAYER_WEIGHTS
from layerwise.runner.minimal_pairs import discard_rows as discard_pairs
from layerwise.runner.minimal_pairs import format_pairs
from layerwise.runner.plan_choice import PlanChoice
from layerwise.runner.tasks import Study
from layerwise.studies.evaluate.attribution import attribute
from layerwise.studies.evaluate.edges import edges_table
from layerwise.studies.evaluate.finetuned_tasks import (
    PREDICTIONS,
    FineTunedModel,
    check_one_depth,
    run_task,
    store_summary,
)
from layerwise.studies.evaluate.page import PLANS, TASK_TABLE, FineTuneResults, plan_table
from layerwise.studies.evaluate.subjects import HELD, Subjects, SuiteChoice
from layerwise.train.fine_tuning import FineTuningConfig

ONE = Format(decimals=1)
AGGREGATED = ("blimp", "supplement", "glue", "msgs")

REWIRED = "rewired"
"""Directory of models whose layer weights were added after pretraining."""


def plan_models(subjects: Subjects, choice: PlanChoice) -> tuple[tuple[FineTunedModel, ...], tuple[str, ...]]:
    """Return the models, each with the plans that it can run, and notes on the other plans."""
    if not choice.describe():
        return tuple(subjects.models.values()), ()
    planned: list[FineTunedModel] = []
    notes: list[str] = []
    for label, model in subjects.models.items():
        stack = subjects.open_stack(label)
        members, skipped = filter_runnable(stack, choice.list_members(stack.depth))
        planned.append(replace(model, members=members))
        notes += skipped
    check_one_depth(planned)
    return tuple(planned), tuple(dict.fromkeys(notes))


def describe_scoring(
    subjects: Subjects, selection: SuiteChoice, cuts: Sequence[EdgeCut], weighted: Sequence[str]
) -> Iterator[str]:
    count = len(subjects.models)
    yield f"{count} model{'s' * (count != 1)}: {', '.join(subjects.models)}"
    for each in selection.pairs:
        yield f"{each.suite}: {len(each.pairs):,} pairs"
    if cuts:
        passes = 1 + len(cuts) * (1 + DRAWS)
        sentences = 2 * len(weighted) * passes * sum(len(each.pairs) for each in selection.pairs)
        yield (
            f"without edges: {len(cuts)} conditions for {len(weighted)} models, each compared with {DRAWS} random "
            f"ones; at most {sentences:,} additional sentences"
        )


def describe_tuning(
    models: Sequence[FineTunedModel],
    skipped: Sequence[str],
    selection: SuiteChoice,
    *,
    seeds: int,
    layer_weights: Collection[str],
    minutes: float | None,
) -> Iterator[str]:
    if selection.tasks:
        yield f"fine-tuned tasks: {', '.join(task.name for task in selection.tasks)}"
    plans = [len(model.plans) for model in models]
    if any(plans):
        yield f"plans: {max(plans):,}, each used in fine-tuning and testing, compared with the original model"
    for note in skipped:
        yield f"note: {note}"
    scored = 2 * len(models) * sum(len(each.pairs) for each in selection.pairs)
    most = "" if minutes is None else f" at most (--minutes {minutes:g})"
    variants = {"held": LAYER_WEIGHTS, "added": BACKBONE}
    compared = [variants[name] for name in layer_weights]
    tuned = len(models) + sum(model.variant in compared for model in models)
    tunings = (tuned + sum(plans)) * len(selection.tasks) * seeds
    tunings += 2 * tuned * selection.attributes  # true and shuffled labels
    yield f"cost: {scored:,} sentences to score{most}, {tunings:,} fine-tuning runs"


def discard_answers(tasks: Sequence[ClassificationTask], folder: Path) -> None:
    for name in {task.measure for task in tasks}:
        shutil.rmtree(folder / PREDICTIONS / name, ignore_errors=True)


def discard_rows(run: Run, selection: SuiteChoice, *, has_cuts: bool) -> None:
    discard_pairs(selection.pairs, run)
    for measure in (*([EDGES] if has_cuts else []), *([ATTRIBUTION] if selection.attributes else [])):
        run.store.replace_scores(measure, [])


def fine_tune_models(
    study: Study,
    models: Sequence[FineTunedModel],
    skipped: Sequence[str],
    selection: SuiteChoice,
    settings: FineTuningConfig,
    *,
    seeds: int,
    device: str,
    layer_weights: Collection[str],
) -> None:
    """Do the missing fine-tuning runs, and store scores, summaries and the BabyLM aggregate.

    If `layer_weights` contains `held`, `elc` models are also fine-tuned with their layer weights frozen. If it contains
    `added`, `ltg` models are also fine-tuned with new layer weights.
    """
    run, progress = study.run, study.reporter.progress
    trained = list(_with_weight_conditions(models, layer_weights, run.folder))
    if selection.attributes:
        attribute(trained, settings, run, progress=progress, device=device)
    common: dict[str, Any] = {"seeds": seeds, "device": device, "progress": progress}
    for task in selection.tasks:
        run_task(trained, task, settings, run, **common)
    glue = [task for task in selection.tasks if task.measure == GLUE]
    if any(model.plans for model in models):
        run.store.replace_notes(PLANS, skipped)
        for task in selection.tasks:
            for plan in dict.fromkeys(plan for model in models for plan in model.plans):
                planned = [model for model in models if plan in model.plans]
                run_task(planned, task, settings, run, plan=plan, **common)
            # An interrupted evaluation has a page, too, so the summary must cover the finished tasks.
            if task in glue:
                store_summary(models, glue[: glue.index(task) + 1], run, seeds=seeds)
    elif glue:
        store_summary(models, glue, run, seeds=seeds)
    if set(selection.names) & set(AGGREGATED):
        rows = [row for suite in AGGREGATED for row in run.store.scores(suite)]
        run.store.replace_scores(BABYLM, babylm_rows(row for row in rows if row.plan is None))


def _with_weight_conditions(
    models: Sequence[FineTunedModel], names: Collection[str], run: Path
) -> Iterator[FineTunedModel]:
    for model in models:
        yield model
        if model.variant == LAYER_WEIGHTS and "held" in names:
            yield replace(model, variant=KEPT, frozen=HELD)
        if model.variant == BACKBONE and "added" in names:
            folder = run / REWIRED / f"{BACKBONE}-{model.seed}"
            if not (folder / "tokenizer.json").is_file():
                rewired(ElcForMaskedLM.from_pretrained(model.location)).save_pretrained(folder)
                load_tokenizer(model.location).save_pretrained(folder)
            yield replace(model, variant=ADDED, location=folder)


def list_results(run: Run, selection: SuiteChoice, cuts: Sequence[EdgeCut]) -> list[str]:
    return [
        *(format_pairs(run, each) for each in selection.pairs),
        *(edges_table(run, each.suite) for each in selection.pairs if cuts),
        *(_task_tables(run) if selection.tasks else ()),
        *filter(None, [aggregate_lines(run) if set(selection.names) & set(AGGREGATED) else ""]),
    ]


def _task_tables(run: Run) -> Iterator[str]:
    data = ReportData({}, tuple(run.store.plans()), tuple(run.store.scores()))
    titled = [(f"{title}, fine-tuned", table) for title, table in TASK_TABLE.tables(data)]
    for each in FineTuneResults.list_all(data):
        head = f"{each.suite} under plans, used in fine-tuning and testing, {each.variant}"
        titled.append((head, plan_table(data, each.suite, each.variant)))
    for head, table in titled:
        yield "\n".join([f"{head}:", *(f"  {line}" for line in table.lines())])


def aggregate_lines(run: Run) -> str:
    rows = Rows(run.store.scores(BABYLM)).where(seed=None)
    weights = " + ".join(f"{weight:g} {part}" for part, weight in WEIGHTS.items())
    body = []
    for variant, own in rows.by("variant").items():
        total, files = own.one(metric="aggregate"), {part: own.value(task=part, metric="files") or 0 for part in FILES}
        shown = ABSENT if total is None else ONE.text(total) + (", partial" if files != FILES else "")
        parts = [_describe_part(own.one(task=part, metric="part"), files[part], FILES[part]) for part in FILES]
        body.append((str(variant), shown, *parts))
    lines = Table(("variant", "aggregate", *FILES), tuple(body)).lines()
    head = f"BabyLM's aggregate of 2023, {weights}, in points:"
    return "\n".join([head, *(f"  {line}" for line in lines)]) if lines else ""


def _describe_part(part: Score | None, files: float, count: int) -> str:
    details = [] if files == count else [f"{files:.0f} of {count} files"]
    if part is not None and part.documents is not None:
        details.append(f"{part.documents:,} examples")
    value = ABSENT if part is None else ONE.text(part)
    return f"{value} ({', '.join(details)})" if details else value
