"""Models fine-tuned and tested under plans, as rows next to those of the original models.

This is the BERT half of "Transformer Layers as Painters" (Sun et al., 2024, section 2, appendix A.9). Rows have a
`plan`, at the three levels of `layerwise.runner.finetuned_tasks`. Rows of task "all" have the `mean` over a suite
and, scaled from chance to the original model (condition `NORMALISED`), `mean` and `median`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from layerwise.data.suites.classification import ClassificationTask
from layerwise.errors import DataError
from layerwise.measure.interventions.sweep import plan_records
from layerwise.measure.language.task_summary import (
    ChanceScale,
    chance_scale,
    normalised_rows,
    summary_rows,
)
from layerwise.results import Rows, Run, Score
from layerwise.results.vocabulary import ALL, CHANCE
from layerwise.runner.finetuned_tasks import FineTunedModel, Progress, averaged, run_task, store_note, store_rows
from layerwise.train.fine_tuning import FineTuningConfig


def check_one_depth(models: Sequence[FineTunedModel]) -> None:
    depths = {len(model.members[0].plan.steps()): model.label for model in models if model.members}
    if len(depths) > 1:
        shown = ", ".join(f"{label} has {depth} layers" for depth, label in sorted(depths.items()))
        raise DataError(
            f"the models of the run differ in depth ({shown}), so they share no plans; evaluate each by itself"
        )


def run_plans(
    models: Sequence[FineTunedModel],
    tasks: Sequence[ClassificationTask],
    settings: FineTuningConfig,
    run: Run,
    *,
    seeds: int = 3,
    progress: Progress | None = None,
    device: str = "auto",
) -> None:
    """Fine-tune every model on every task under each of its plans, with `seeds` seeds; stored results are kept."""
    for task in tasks:
        for plan in dict.fromkeys(plan for model in models for plan in model.plans):
            under = [model for model in models if plan in model.plans]
            run_task(under, task, settings, run, plan=plan, seeds=seeds, progress=progress, device=device)
            # Plans stand in the run once one of them has a row: a run of plans without rows is a sweep that waits.
            run.store.add_plans(plan_records(member for model in models for member in model.members))


def store_summary(
    models: Sequence[FineTunedModel], tasks: Sequence[ClassificationTask], run: Run, *, seeds: int
) -> None:
    """Store the means over the `tasks` of a suite, and the scores from chance to the original model.

    Models that were fine-tuned on only some of the tasks have none.
    """
    measure = tasks[0].measure
    stored = Rows(run.store.scores(measure)).where(condition=None)
    pieces: list[list[list[Score]]] = []
    for model in models:
        scales = _scales(stored.where(arm=model.arm, seed=None, other=None, plan=None), tasks)
        for plan in (None, *model.plans):
            own = stored.where(arm=model.arm, seed=model.seed, plan=None if plan is None else str(plan))
            rows = [_summarised(own.where(other=seed), tasks, {} if plan is None else scales) for seed in range(seeds)]
            if all(rows):
                pieces.append(rows)
    store_rows(run, averaged(pieces))
    if len(tasks) > 1:
        listed = ", ".join(f"{task.name} ({task.metric})" for task in tasks)
        store_note(run, measure, ALL, f"{ALL}: the mean is over {listed}.")


def _scales(stored: Rows, tasks: Sequence[ClassificationTask]) -> dict[str, ChanceScale]:
    scales = {}
    for task in tasks:
        of = stored.where(task=task.name, metric=task.metric)
        trained, chance = of.one(against=None), of.one(against=CHANCE)
        if trained is not None and chance is not None and (scale := chance_scale(trained, chance)) is not None:
            scales[task.name] = scale
    return scales


def _summarised(stored: Rows, tasks: Sequence[ClassificationTask], scales: Mapping[str, ChanceScale]) -> list[Score]:
    scores, chances = (
        {
            task.name: row
            for task in tasks
            if (row := stored.one(task=task.name, metric=task.metric, against=against)) is not None
        }
        for against in (None, CHANCE)
    )
    if len(scores) < len(tasks):
        return []
    return [*summary_rows(scores, chances), *normalised_rows(scores, scales)]
