"""What a schedule saves of uniform training, seed for seed, as rows of measure `growth`; see
`layerwise.measure.cost.cost_to_loss`.

Of an arm against uniform, the cost (tokens, flops, seconds) as condition:

    saving          what the arm saves to reach the loss that uniform ends with; `saving_at_most` and
                    `saving_at_least` where a seed never reached it, or sooner than can be read: a bound alone
    read_off        how many trainings of the arm, of different lengths, that was read off; 1: the course of one
    never, sooner   of how many seeds the loss was never reached, or reached sooner than at the first cost

and, as ratios of what uniform has and what the arm has, means over seeds of their logarithms,

    loss_ratio      at equal `tokens`: uniform's held-out loss after as many tokens, over the arm's
                    condition `budget`: uniform's at the end of its whole budget, over that of an arm with a smaller one
    time_saved      at equal `tokens`: the share of uniform's seconds that as many steps of the arm do not take

A course is read off the looks of a training at the validation text while its rate has not come down, which makes a loss
look dearer than a training to that length would show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from layerwise.measure.cost.cost_to_loss import log_ratio, ratio_row, saving
from layerwise.measure.cost.frontier import COSTS, CostPoint, Points
from layerwise.plan.schedule import GrowthSchedule, ModelCost
from layerwise.plan.schedule.cost import phase_shares
from layerwise.results.rows import Score
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import GROWTH, LOSS_RATIO, NEVER, READ_OFF, SOONER, TIME_SAVED, TOKENS


def losses_by_cost(
    record: TrainingRecord, schedule: GrowthSchedule, cost: ModelCost, paces: Mapping[str, float], otherwise: float
) -> list[CostPoint]:
    """The validation losses of a training by what it had cost when they were measured, in order of time.

    `paces` are seconds a step by phase; a phase that was not timed takes `otherwise` a step. Operations of what chance
    decides are the means of their phases.
    """
    tokens, flops = record.figures["tokens"], record.figures["flops"]
    shares = phase_shares(schedule, cost)
    seconds = [paces.get(phase.name, otherwise) for phase in schedule.phases]
    whole = _by_step(schedule, record.steps, shares, record.steps)
    return [
        CostPoint(
            moment.loss,
            {
                "tokens": tokens * moment.step / record.steps,
                "flops": flops * _by_step(schedule, record.steps, shares, moment.step) / whole,
                "seconds": _by_step(schedule, record.steps, seconds, moment.step),
            },
        )
        for moment in record.history
        if moment.kind == "validation" and moment.step > 0
    ]


def _by_step(schedule: GrowthSchedule, steps: int, each: Sequence[float], step: int) -> float:
    """What the first `step` of `steps` add up to, `each` being what a step of every phase is."""
    bounds = schedule.bounds(steps)
    return sum(amount * max(0, min(step, end) - first) for amount, (first, end) in zip(each, bounds, strict=True))


def saving_rows(
    arm: str, trainings: Mapping[int, Sequence[CostPoint]], reference: Points, name: str, read_off: int
) -> list[Score]:
    """What `arm` saves of each cost of the reference called `name`, whose loss it is to reach."""
    rows: list[Score] = []
    for cost in COSTS:
        estimate = saving(trainings, reference, cost)
        if estimate is not None:
            own: dict[str, Any] = {"arm": arm, "against": name, "condition": cost}
            censored = {NEVER: estimate.never, SOONER: estimate.sooner}
            rows += [
                Score(GROWTH, estimate.metric, estimate.value, estimate.low, estimate.high, **own),
                *(Score(GROWTH, kind, float(seeds), **own) for kind, seeds in censored.items() if seeds),
                Score(GROWTH, READ_OFF, float(read_off), **own),
            ]
    return rows


def loss_ratio_row(
    arm: str,
    losses: Mapping[int, float],
    reference: Mapping[int, float],
    name: str,
    terms: str,
    share: float | None = None,
) -> Score:
    """The reference's loss over the arm's, paired by seed: 2 where the arm's is half of it.

    `share` is that of the whole budget, where the arm has another.
    """
    ratio = log_ratio(reference, losses)
    return ratio_row(GROWTH, LOSS_RATIO, ratio, arm=arm, against=name, condition=terms, amount=share)


def time_saved_row(arm: str, seconds: Mapping[int, float], reference: Mapping[int, float], name: str) -> Score:
    """The share of the reference's time that the arm does not take for as many steps."""
    taken = ratio_row(GROWTH, TIME_SAVED, log_ratio(seconds, reference), arm=arm, against=name, condition=TOKENS)
    low, high = (None if bound is None else 1 - bound for bound in (taken.high, taken.low))
    return replace(taken, value=1 - taken.value, low=low, high=high)
