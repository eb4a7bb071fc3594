"""Compute the rows of `layerwise train growth` from its finished training runs.

They have these measures:

    schedule     cost of a layer in a phase, as a share of its full cost
    accounting   cost of a step, as a share of a uniform step: `predicted` from FLOPs, `measured` in seconds
    held_out     held-out loss in nats/token
    null         loss of bigram and unigram baselines on the same text
    rates        validation loss at every learning rate
    growth       comparison of two variants (`layerwise.train.cost.frontier`)

The seconds of a phase are its median step time multiplied by its number of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path
from statistics import median
from typing import Any

from layerwise.measure.stats.seeds import seed_difference
from layerwise.plan.schedule import GrowthSchedule, ModelCost, layer_shares
from layerwise.plan.schedule.cost import embedding_share, head_share, phase_shares
from layerwise.results import Score
from layerwise.results.training_record import MODEL, TrainingRecord, find_trained_models
from layerwise.results.vocabulary import (
    ACCOUNTING,
    BUDGET,
    EMBEDDING_PART,
    FLOPS,
    GROWTH,
    HEAD_PART,
    HELD_OUT,
    LOSS_RATIO,
    MEASURED,
    NULL,
    PREDICTED,
    SCHEDULE,
    SHARE,
    TIME_SAVED,
    TOKENS,
)
from layerwise.runner.tasks import RoundsTask, RowsTask, Study
from layerwise.runner.training_runs import average_over_seeds, make_training_rows
from layerwise.studies.train_growth.design import parse_length
from layerwise.studies.train_growth.held_out import make_held_out_row, make_null_rows
from layerwise.studies.train_growth.task import GrowthTask
from layerwise.studies.train_growth.variants import CONTROLS, IMPORTANCE, UNIFORM
from layerwise.train.cost.frontier import (
    EQUAL,
    CostPoint,
    Points,
    compare_at_cost,
    difference_rows,
    log_ratio,
    loss_at,
    ratio_row,
    saving_rows,
)
from layerwise.train.recipe import GrowthExtension

Model = tuple[str | None, int | None, float | None]
"""A trained model: its variant, its seed, and its share of the budget."""


@dataclass(frozen=True, slots=True)
class FinishedVariant:
    """The schedule of a variant, and its finished training runs by seed."""

    name: str
    schedule: GrowthSchedule
    records: Mapping[int, TrainingRecord]

    @property
    def variant(self) -> str:
        return parse_length(self.name)[0]

    @property
    def share(self) -> float | None:
        return parse_length(self.name)[1]

    @property
    def steps(self) -> int:
        """Number of steps with the first seed. If the schedule draws layers at random, other seeds may differ."""
        return self.records[min(self.records)].steps

    def seconds_per_step(self, *seeds: int) -> float | None:
        return _compute_median("step_seconds", [self.records[seed] for seed in seeds or self.records])

    def phase_seconds(self, *seeds: int) -> dict[str, float]:
        records = [self.records[seed] for seed in seeds or self.records]
        timed = {phase.name: _compute_median(f"step_seconds {phase.name}", records) for phase in self.schedule.phases}
        return {name: seconds for name, seconds in timed.items() if seconds is not None}

    def seconds(self, steps: int, step: int, phases: Mapping[str, float], otherwise: float) -> float:
        """Return the seconds until `step` of `steps`, given each phase's seconds per step (default: `otherwise`)."""
        return self.sum_until(steps, step, [phases.get(phase.name, otherwise) for phase in self.schedule.phases])

    def sum_until(self, steps: int, step: int, per_step: Sequence[float]) -> float:
        bounds = self.schedule.bounds(steps)
        return sum(each * max(0, min(step, end) - first) for each, (first, end) in zip(per_step, bounds, strict=True))


def _compute_median(figure: str, records: Iterable[TrainingRecord]) -> float | None:
    timed = [record.figures[figure] for record in records if figure in record.figures]
    return median(timed) if timed else None


def list_finished_variants(folder: Path) -> dict[str, FinishedVariant]:
    records: dict[str, dict[int, TrainingRecord]] = {}
    for model in find_trained_models(folder):
        record = TrainingRecord.read(model)
        if record is not None and record.recipe.get("extension") == GrowthExtension.NAME:
            records.setdefault(record.variant, {})[record.seed] = record
    return {
        variant: FinishedVariant(
            variant, GrowthSchedule.from_json(next(iter(own.values())).recipe["options"]["schedule"]), own
        )
        for variant, own in records.items()
    }


def compute_scores(
    study: Study, task: GrowthTask, finished: Mapping[str, FinishedVariant]
) -> tuple[list[Score], dict[str, Points]]:
    """Return the rows of each variant, without comparisons, and its held-out loss and costs by seed."""
    models: dict[Model, Path] = {
        (of.variant, seed, of.share): study.folder / of.name / f"seed-{seed}" / MODEL
        for of in finished.values()
        for seed in of.records
    }

    def loss(model: Model) -> Iterator[Score]:
        variant, seed, share = model
        yield make_held_out_row(
            models[model], task.splits, str(task.stack.device), variant=variant, seed=seed, share=share
        )

    evaluations = RoundsTask(
        HELD_OUT,
        list(models),
        lambda row: (row.variant, row.seed, row.share),
        lambda: loss,
        lambda model: f"{model[0]}/{model[1]}  held-out text",
    )
    measured = study.execute(evaluations)
    null = study.execute(RowsTask(NULL, lambda: make_null_rows(task.splits)))
    losses = {model: measured[model][0] for model in models}
    uniform = _compute_median(
        "step_seconds", [each for of in _divide_by_uniform(finished) for each in of.records.values()]
    )
    rows = [*null, *losses.values(), *average_over_seeds(losses.values())]
    for of in finished.values():
        rows += _make_training_rows(of)
        if of.share is None:
            rows += make_schedule_rows(of)
            rows += make_accounting_rows(of, task.cost, uniform)
    return rows, {name: _list_points(of, losses, uniform) for name, of in finished.items()}


def _divide_by_uniform(finished: Mapping[str, FinishedVariant]) -> list[FinishedVariant]:
    return [of for of in finished.values() if of.variant == UNIFORM]


def _make_training_rows(of: FinishedVariant) -> Iterator[Score]:
    phases = {f"step_seconds {phase.name}": phase.name for phase in of.schedule.phases}
    for row in make_training_rows({(of.variant, seed): record for seed, record in of.records.items()}):
        phase = phases.get(row.metric)
        metric = row.metric if phase is None else "step_seconds"
        yield replace(row, metric=metric, phase=phase, share=of.share)


def make_schedule_rows(of: FinishedVariant) -> Iterator[Score]:
    for phase, (_, end) in zip(of.schedule.phases, of.schedule.bounds(of.steps), strict=True):
        own: dict[str, Any] = {"variant": of.variant, "phase": phase.name, "step": end}
        for layer, share in enumerate(layer_shares(phase, of.schedule.depth)):
            yield Score(SCHEDULE, SHARE, share, layer=layer, **own)
        yield Score(SCHEDULE, SHARE, embedding_share(phase), part=EMBEDDING_PART, **own)
        yield Score(SCHEDULE, SHARE, head_share(phase), part=HEAD_PART, **own)


def make_accounting_rows(of: FinishedVariant, cost: ModelCost, uniform: float | None) -> Iterator[Score]:
    """Yield the cost of a step in every phase, relative to a uniform step, which takes `uniform` seconds."""
    shares, timed = phase_shares(of.schedule, cost), of.phase_seconds()
    for phase, (_, end), predicted in zip(of.schedule.phases, of.schedule.bounds(of.steps), shares, strict=True):
        own: dict[str, Any] = {"variant": of.variant, "phase": phase.name, "step": end}
        yield Score(ACCOUNTING, PREDICTED, predicted, **own)
        if uniform is not None and phase.name in timed:
            yield Score(ACCOUNTING, MEASURED, timed[phase.name] / uniform, **own)


def _list_points(of: FinishedVariant, held_out: Mapping[Model, Score], uniform: float | None) -> Points:
    usual, phases = (uniform, {}) if of.variant == UNIFORM else (of.seconds_per_step(), of.phase_seconds())
    return {
        seed: CostPoint(
            held_out[of.variant, seed, of.share].value,
            {
                "tokens": each.figures["tokens"],
                "flops": each.figures["flops"],
                "seconds": of.seconds(each.steps, each.steps, phases, usual or each.seconds / each.steps),
            },
        )
        for seed, each in of.records.items()
    }


def compare_variants(
    finished: Mapping[str, FinishedVariant], ends: Mapping[str, Points], cost: ModelCost
) -> tuple[list[Score], list[str]]:
    """Return the comparisons of every variant with uniform training and with its controls, and notes on missing ones.

    `ends` has the held-out loss and the costs of every training run.
    """
    if UNIFORM not in finished:
        return [], []
    uniform = _divide_by_uniform(finished)
    lengths = {seed: [ends[of.name][seed] for of in uniform if seed in of.records] for seed in ends[UNIFORM]}
    others = [of for of in finished.values() if of.variant != UNIFORM]
    whole = {of.name: ends[of.name] for of in others if of.share is None}
    rows, notes = compare_at_cost(whole, lengths)
    if len(uniform) > 1:
        for row in compare_at_cost({of.name: ends[of.name] for of in others if of.share is not None}, lengths)[0]:
            variant, share = parse_length(str(row.variant))
            rows.append(replace(row, variant=variant, share=share))
    for of in others:
        if set(of.records) & set(ends[UNIFORM]):
            rows += _compute_loss_ratios(of, ends[of.name], lengths, ends[UNIFORM])
            if of.share is None:
                rows += _compute_savings(of, finished, ends, cost)
                rows += _compute_time_saved(of, finished[UNIFORM])
    own = whole.get(IMPORTANCE, {})
    for control in CONTROLS:
        other = whole.get(control, {})
        if set(own) & set(other):
            losses = [{seed: each.loss for seed, each in of.items()} for of in (own, other)]
            rows += difference_rows({IMPORTANCE: seed_difference(*losses)}, control, FLOPS)
    return rows, notes


def _compute_savings(
    own: FinishedVariant, finished: Mapping[str, FinishedVariant], ends: Mapping[str, Points], cost: ModelCost
) -> list[Score]:
    """Compute savings from training runs of several lengths, or else from the loss curve of a single one."""
    trained = [name for name, of in finished.items() if of.variant == own.variant]
    seeds = set.intersection(*(set(ends[name]) for name in trained))
    if len(trained) > 1 and seeds:
        points = {seed: [ends[name][seed] for name in trained] for seed in seeds}
        return saving_rows(own.variant, points, ends[UNIFORM])
    uniform = {seed: curve[-1] for seed, curve in _read_curves(finished[UNIFORM], cost).items()}
    return saving_rows(own.variant, _read_curves(own, cost), uniform)


def _read_curves(of: FinishedVariant, cost: ModelCost) -> dict[int, Sequence[CostPoint]]:
    """Return the validation losses and their costs for each seed. FLOPs are estimated from the schedule."""
    shares, phases, usual = phase_shares(of.schedule, cost), of.phase_seconds(), of.seconds_per_step()
    curves: dict[int, Sequence[CostPoint]] = {}
    for seed, record in of.records.items():
        steps, figures = record.steps, record.figures
        otherwise, whole = usual or record.seconds / steps, of.sum_until(steps, steps, shares)
        curve = [
            CostPoint(
                moment.loss,
                {
                    "tokens": figures["tokens"] * moment.step / steps,
                    "flops": figures["flops"] * of.sum_until(steps, moment.step, shares) / whole,
                    "seconds": of.seconds(steps, moment.step, phases, otherwise),
                },
            )
            for moment in record.history
            if moment.kind == "validation" and moment.step > 0
        ]
        if curve:
            curves[seed] = curve
    return curves


def _compute_loss_ratios(
    of: FinishedVariant, ends: Points, lengths: Mapping[int, Sequence[CostPoint]], whole: Points
) -> Iterator[Score]:
    own = {seed: point.loss for seed, point in ends.items() if seed in whole}
    equal = {seed: _read_loss_after(ends[seed].costs["tokens"], lengths[seed], whole[seed]) for seed in own}
    measured = {seed: loss for seed, loss in equal.items() if loss is not None}
    if len(measured) == len(own):
        yield make_loss_ratio_row(of.variant, own, measured, TOKENS, of.share)
    if of.share is not None:
        yield make_loss_ratio_row(of.variant, own, {seed: whole[seed].loss for seed in own}, BUDGET, of.share)


def _read_loss_after(tokens: float, lengths: Sequence[CostPoint], whole: CostPoint) -> float | None:
    if abs(tokens / whole.costs["tokens"] - 1) <= EQUAL["tokens"]:
        return whole.loss
    return loss_at(lengths, tokens, "tokens")


def make_loss_ratio_row(
    variant: str, losses: Mapping[int, float], uniform: Mapping[int, float], terms: str, share: float | None = None
) -> Score:
    """Return the ratio of the loss of uniform training to that of the variant, paired by seed."""
    ratio = log_ratio(uniform, losses)
    return ratio_row(GROWTH, LOSS_RATIO, ratio, variant=variant, against=UNIFORM, unit=terms, share=share)


def _compute_time_saved(of: FinishedVariant, uniform: FinishedVariant) -> Iterator[Score]:
    own, others = {}, {}
    for seed in set(of.records) & set(uniform.records):
        steps, usual, plain = uniform.records[seed].steps, of.seconds_per_step(seed), uniform.seconds_per_step(seed)
        if usual is not None and plain is not None:
            own[seed] = of.seconds(steps, steps, of.phase_seconds(seed), usual)
            others[seed] = plain * steps
    if own:
        taken = log_ratio(own, others)
        low, high = (None if bound is None else 1 - exp(bound) for bound in (taken.high, taken.low))
        yield Score(
            GROWTH, TIME_SAVED, 1 - exp(taken.value), low, high, variant=of.variant, against=UNIFORM, unit=TOKENS
        )
