"""The rows of the published headline: what a schedule saves to reach uniform's loss, and at equal steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from layerwise.experiments.growth.config import UNIFORM
from layerwise.experiments.growth.rows import FinishedArm
from layerwise.measure.cost.frontier import EQUAL, CostPoint, Frontier, Points
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BUDGET, TOKENS
from layerwise.schedule import ModelCost
from layerwise.train.phases.metrics import phase_paces, seconds_of_steps, step_pace
from layerwise.train.phases.savings import loss_ratio_row, losses_by_cost, saving_rows, time_saved_row


def headline_rows(finished: Mapping[str, FinishedArm], ends: Mapping[str, Points], cost: ModelCost) -> list[Score]:
    """The rows of `layerwise.train.phases.savings`, of every arm that has seeds in common with uniform.

    `ends` are where the trainings of every arm ended, on held-out text. An arm that was trained to several lengths
    (`ARM@SHARE`) is read off their ends, another off its curve. None without uniform.
    """
    if UNIFORM not in finished:
        return []
    whole = ends[UNIFORM]
    lengths = {
        seed: [ends[name][seed] for name, of in finished.items() if of.arm == UNIFORM and seed in of.records]
        for seed in whole
    }
    rows: list[Score] = []
    for name, of in finished.items():
        if of.arm == UNIFORM or not set(of.records) & set(whole):
            continue
        rows += _loss_ratios(of, ends[name], lengths, whole)
        if of.share is None:
            rows += _savings(of, finished, ends, cost)
            rows += _time_saved(of, finished[UNIFORM])
    return rows


def _savings(
    own: FinishedArm, finished: Mapping[str, FinishedArm], ends: Mapping[str, Points], cost: ModelCost
) -> list[Score]:
    trained = [name for name, of in finished.items() if of.arm == own.arm]
    seeds = set.intersection(*(set(ends[name]) for name in trained))
    if len(trained) > 1 and seeds:
        points = {seed: [ends[name][seed] for name in trained] for seed in seeds}
        return saving_rows(own.arm, points, ends[UNIFORM], UNIFORM, len(trained))
    curves, uniform = _curves(own, cost), _curves(finished[UNIFORM], cost)
    return saving_rows(own.arm, curves, {seed: curve[-1] for seed, curve in uniform.items()}, UNIFORM, 1)


def _curves(of: FinishedArm, cost: ModelCost) -> dict[int, Sequence[CostPoint]]:
    """The curves of an arm's trainings, by seed; a training that was never looked at has none."""
    pace = step_pace(of.records.values())
    curves = {
        seed: losses_by_cost(record, of.schedule, cost, of.paces, pace or record.seconds / record.steps)
        for seed, record in of.records.items()
    }
    return {seed: curve for seed, curve in curves.items() if curve}


def _loss_ratios(
    of: FinishedArm, ends: Points, lengths: Mapping[int, Sequence[CostPoint]], whole: Points
) -> list[Score]:
    """At equal tokens where uniform's loss there can be read; of an arm with a smaller budget against the whole too."""
    own = {seed: point.loss for seed, point in ends.items() if seed in whole}
    rows = []
    equal = {seed: _loss_at(ends[seed].costs["tokens"], lengths[seed], whole[seed]) for seed in own}
    known = {seed: loss for seed, loss in equal.items() if loss is not None}
    if len(known) == len(own):
        rows.append(loss_ratio_row(of.arm, own, known, UNIFORM, TOKENS, of.share))
    if of.share is not None:
        rows.append(loss_ratio_row(of.arm, own, {seed: whole[seed].loss for seed in own}, UNIFORM, BUDGET, of.share))
    return rows


def _loss_at(tokens: float, lengths: Sequence[CostPoint], whole: CostPoint) -> float | None:
    """Uniform's loss after so many tokens: of its own training where that read as many, else off its frontier."""
    if abs(tokens / whole.costs["tokens"] - 1) <= EQUAL["tokens"]:
        return whole.loss
    if len({point.costs["tokens"] for point in lengths}) < 2:
        return None
    line = Frontier.of(lengths, "tokens")
    return line.at(tokens) if line.reaches(tokens) else None


def _time_saved(of: FinishedArm, uniform: FinishedArm) -> list[Score]:
    """Of as many steps as uniform has, each at the pace of its own training."""
    own, others = {}, {}
    for seed, record in of.records.items():
        plain = uniform.records.get(seed)
        pace, uniform_pace = step_pace([record]), None if plain is None else step_pace([plain])
        if plain is not None and pace is not None and uniform_pace is not None:
            own[seed] = seconds_of_steps(of.schedule, plain.steps, phase_paces([record], of.schedule), pace)
            others[seed] = uniform_pace * plain.steps
    return [time_saved_row(of.arm, own, others, UNIFORM)] if own else []
