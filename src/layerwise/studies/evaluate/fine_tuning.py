"""Fine-tuned tasks of an evaluation: benchmarks, plans, attribution, summaries, and tables for the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerwise.data.suites.classification import ClassificationTask
from layerwise.data.suites.glue import GLUE
from layerwise.measure.interventions.sweep import runnable
from layerwise.measure.language.babylm import FILES, WEIGHTS, babylm_rows
from layerwise.page import ReportData
from layerwise.page.show import ABSENT, Show
from layerwise.page.text.table import Table
from layerwise.plan import EdgeCut
from layerwise.results import Rows, Run, Score
from layerwise.results.vocabulary import BABYLM, BACKBONE, LAYER_WEIGHTS
from layerwise.runner.finetuned_tasks import PREDICTIONS, FineTunedModel, run_benchmarks
from layerwise.runner.minimal_pairs import pairs_table
from layerwise.runner.plan_choice import PlanChoice
from layerwise.runner.study import Study
from layerwise.studies.evaluate.attribution import attribute
from layerwise.studies.evaluate.edges import edges_table
from layerwise.studies.evaluate.held_weights import with_weight_conditions
from layerwise.studies.evaluate.page import PLANS, TASK_TABLE, Taught, plan_table
from layerwise.studies.evaluate.plans import check_one_depth, run_plans, store_summary
from layerwise.studies.evaluate.subjects import Subjects
from layerwise.studies.evaluate.suites import SuiteChoice
from layerwise.train.fine_tuning import FineTuningConfig

ONE = Show(decimals=1)
AGGREGATED = ("blimp", "supplement", "glue", "msgs")


def plan_models(subjects: Subjects, choice: PlanChoice) -> tuple[tuple[FineTunedModel, ...], tuple[str, ...]]:
    """Return the models with the plans that each can run, and notes on plans that are left out."""
    if not choice.describe():
        return tuple(subjects.models.values()), ()
    planned: list[FineTunedModel] = []
    notes: list[str] = []
    for label, model in subjects.models.items():
        stack = subjects.open_stack(label)
        members, left_out = runnable(stack, choice.list_members(stack.depth))
        planned.append(replace(model, members=members))
        notes += left_out
    check_one_depth(planned)
    return tuple(planned), tuple(dict.fromkeys(notes))


@dataclass(frozen=True)
class FineTuningWork:
    """Fine-tunings of models on tasks, each with `seeds` seeds and also under the plans of the model.

    `layer_weights` are conditions of `layerwise.studies.evaluate.held_weights`.
    """

    models: tuple[FineTunedModel, ...]
    left_out: tuple[str, ...]
    tasks: tuple[ClassificationTask, ...]
    settings: FineTuningConfig
    seeds: int
    device: str
    layer_weights: tuple[str, ...]

    def describe(self, selection: SuiteChoice, minutes: float | None) -> Iterator[str]:
        """Yield the tasks, the plans and the cost, in sentences."""
        if self.tasks:
            yield f"fine-tuned tasks: {', '.join(task.name for task in self.tasks)}"
        plans = [len(model.plans) for model in self.models]
        if any(plans):
            yield f"plans: {max(plans):,}, each active in fine-tuning and in the test, beside the model as trained"
        for note in self.left_out:
            yield f"note: {note}"
        count = len(self.models)
        scored = 2 * count * sum(len(each.pairs) for each in selection.pairs)
        most = "" if minutes is None else f" at most (--minutes {minutes:g})"
        arms = {"held": LAYER_WEIGHTS, "added": BACKBONE}
        compared = [arms[name] for name in self.layer_weights]
        tuned = count + sum(model.arm in compared for model in self.models)
        tunings = (tuned + sum(plans)) * len(self.tasks) * self.seeds
        tunings += 2 * tuned * selection.attributes  # with the labels and with shuffled ones
        yield f"cost: {scored:,} sentences to score{most}, {tunings:,} fine-tunings"

    def discard(self, folder: Path) -> None:
        """Discard the stored answers of the tasks."""
        for suite in {task.measure for task in self.tasks}:
            shutil.rmtree(folder / PREDICTIONS / suite, ignore_errors=True)

    def carry_out(self, study: Study, selection: SuiteChoice) -> None:
        """Fine-tune what is missing, and store scores, summaries and the aggregate of BabyLM."""
        run, reporter = study.run, study.reporter

        def progress(label: str, step: int, steps: int) -> None:
            reporter.progress(label, step / steps)

        trained = list(with_weight_conditions(self.models, self.layer_weights, run.folder))
        if selection.attributes:
            attribute(trained, self.settings, run, progress=progress, device=self.device)
        run_benchmarks(trained, self.tasks, self.settings, run, seeds=self.seeds, device=self.device, progress=progress)
        has_plans = any(model.plans for model in self.models)
        for number, task in enumerate(self.tasks if has_plans else (), start=1):
            run.store.replace_notes(PLANS, self.left_out)
            run_plans(self.models, [task], self.settings, run, seeds=self.seeds, device=self.device, progress=progress)
            self._summarize(run, self.tasks[:number])
        self._summarize(run, self.tasks)
        if set(selection.names) & set(AGGREGATED):
            store_aggregate(run)

    def _summarize(self, run: Run, tasks: Sequence[ClassificationTask]) -> None:
        glue = [task for task in tasks if task.measure == GLUE]
        if glue:
            store_summary(self.models, glue, run, seeds=self.seeds)


def list_results(run: Run, selection: SuiteChoice, cuts: Sequence[EdgeCut]) -> list[str]:
    """Return the tables for the terminal."""
    return [
        *(pairs_table(run, each) for each in selection.pairs),
        *(edges_table(run, each.suite) for each in selection.pairs if cuts),
        *(_task_tables(run) if selection.tasks else ()),
        *filter(None, [aggregate_lines(run) if set(selection.names) & set(AGGREGATED) else ""]),
    ]


def _task_tables(run: Run) -> Iterator[str]:
    data = ReportData({}, tuple(run.store.plans()), tuple(run.store.scores()))
    titled = [(f"{title}, fine-tuned", table) for title, table in TASK_TABLE.tables(data)]
    for own in Taught.every(data):
        head = f"{own.suite} under plans, active in fine-tuning and in the test, {own.arm}"
        titled.append((head, plan_table(data, own.suite, own.arm)))
    for head, table in titled:
        yield "\n".join([f"{head}:", *(f"  {line}" for line in table.lines())])


def store_aggregate(run: Run) -> None:
    rows = [row for suite in AGGREGATED for row in run.store.scores(suite)]
    trained = [row for row in rows if row.plan is None]
    run.store.replace_scores(BABYLM, babylm_rows(trained))


def aggregate_lines(run: Run) -> str:
    rows = Rows(run.store.scores(BABYLM)).where(seed=None)
    weights = " + ".join(f"{weight:g} {part}" for part, weight in WEIGHTS.items())
    body = []
    for arm, own in rows.by("arm").items():
        total, files = own.one(metric="aggregate"), {part: own.value(task=part, metric="files") or 0 for part in FILES}
        shown = ABSENT if total is None else ONE.text(total) + (", partial" if files != FILES else "")
        parts = [_describe_part(own.one(task=part, metric="part"), files[part], FILES[part]) for part in FILES]
        body.append((str(arm), shown, *parts))
    lines = Table(("arm", "aggregate", *FILES), tuple(body)).lines()
    head = f"BabyLM's aggregate of 2023, {weights}, in points:"
    return "\n".join([head, *(f"  {line}" for line in lines)]) if lines else ""


def _describe_part(part: Score | None, files: float, count: int) -> str:
    details = [] if files == count else [f"{files:.0f} of {count} files"]
    if part is not None and part.documents is not None:
        details.append(f"{part.documents:,} examples")
    value = ABSENT if part is None else ONE.text(part)
    return f"{value} ({', '.join(details)})" if details else value
