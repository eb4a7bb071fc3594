"""The schedule by importance of a study of growth: measured on the best uniform model of its sweep.

RUN/importance.yaml     the schedule
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from layerwise.experiments.engines.steps import UnitSession
from layerwise.experiments.growth.task import GrowthTask
from layerwise.experiments.growth_study.arms import IMPORTANCE
from layerwise.measure.interventions.importance import measured_importance
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.measure.stats.verdict_criterion import VerdictCriterion
from layerwise.results.rows import Score
from layerwise.schedule import GrowthSchedule
from layerwise.schedule.allocation import MIN_EFFECT, Importance, allocation
from layerwise.schedule.yaml import read_schedule, write_schedule
from layerwise.stack import load

SCHEDULE = "importance.yaml"

AT = "learning_rate"
"""The metric of the row that says which model of the sweep the importance was measured on."""

IMPORTANCE_TOKENS = 50_000
"""Tokens of the validation documents that importance is measured on, at most, spread over them."""


def schedule_by_importance(
    session: UnitSession, task: GrowthTask, model: Path, rate: float, seed: int
) -> GrowthSchedule:  # fmt: skip
    """The schedule by the importance of the layers of `model`, which was trained with the learning rate `rate`.

    It is read where it was made of that model already. Raises `PlanError` where no layer has an effect.
    """
    path = session.folder / SCHEDULE
    known = {row.value for row in session.store.scores(IMPORTANCE, metric=AT)}
    if not path.is_file() or known != {rate}:  # resumed with other rates, another model may be the best
        stack = load(model, device=str(task.stack.device))
        text = tokenize(stack, task.validation_corpus, length=task.length, tokens=IMPORTANCE_TOKENS, seed=seed)
        session.reporter.log(f"measuring the importance of {stack.depth} layers on {text.tokens:,} tokens")
        importance = measured_importance(stack, text, seed=seed, rule=VerdictCriterion(margin=MIN_EFFECT))
        schedule = allocation(importance, min_effect=MIN_EFFECT).schedule(IMPORTANCE)
        path.unlink(missing_ok=True)
        session.store.replace_scores(IMPORTANCE, importance_rows(importance, rate))
        write_schedule(schedule, path)
    return read_schedule(path)


def importance_rows(importance: Sequence[Importance], rate: float) -> list[Score]:
    """What skipping each layer costs, in nats per token, with the interval that holds for all of them together; and the
    learning `rate` of the model that it was measured on."""
    return [
        Score(IMPORTANCE, AT, rate),
        *(
            Score(IMPORTANCE, "skip", each.value, each.low, each.high, layer=layer)
            for layer, each in enumerate(importance)
        ),
    ]
