"""The cost of a training up to each step, in FLOPs and in seconds, and its loss there.

    FLOPs by step n   = FLOPs of the training * sum over steps < n of `predicted` / sum over all steps of `predicted`
    seconds by step n = median seconds of a uniform step * sum over steps < n of `measured`

Seconds are those of steps alone. A phase that was too short to time uses `predicted` in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median

from layerwise.page.data import ReportData
from layerwise.page.derived import growth
from layerwise.results.rows import Score
from layerwise.results.vocabulary import FLOPS, MEASURED, PREDICTED, SECONDS, TRAINING, UNIFORM_TRAINING

FRONTIER = "uniform, decayed at each length"
AXES: dict[str, str] = {FLOPS: "FLOPs", SECONDS: "seconds of training steps"}
"""The costs that a loss is drawn against, the one that decides first."""

Pieces = tuple[tuple[float, float, float], ...]
"""Of a training: (first step, step it ends before, cost of each of its steps)."""


def cost_by(pieces: Pieces, step: float) -> float:
    """The cost of the first `step` steps.

    >>> cost_by(((0, 10, 1.0), (10, 30, 0.5)), 14)
    12.0
    """
    return sum(cost * max(0.0, min(step, end) - first) for first, end, cost in pieces)


def stretched(pieces: Pieces, steps: int) -> Pieces:
    """The same phases in a training of so many steps.

    >>> cost_by(stretched(((0, 10, 1.0), (10, 20, 0.5)), 40), 30)
    25.0
    """
    factor = steps / max(end for _, end, _ in pieces)
    return tuple((factor * first, factor * end, cost) for first, end, cost in pieces)


def outlay(data: ReportData, training: growth.Training, seed: int, terms: str) -> Pieces | None:
    """What a training had cost by each step, on these terms; `None` where its rows do not say."""
    steps, whole = (growth.by_seed(data, TRAINING, metric, training).get(seed) for metric in ("steps", terms))
    if steps is None or steps.value < 1.0:
        return None
    count = int(steps.value)
    pieces = _relative(data, training, count, timed=terms == SECONDS)
    pace = _uniform_pace(data)
    if terms == SECONDS and pace is not None:
        return _scaled(pieces, pace)
    spent = cost_by(pieces, count)
    return None if whole is None or spent <= 0.0 else _scaled(pieces, whole.value / spent)


def loss_by_cost(data: ReportData) -> Iterator[Score]:
    """Return the loss of every variant by cost `amount` of kind `condition`: the mean over seeds, with their range.

    Rows `against` the `FRONTIER` are the final losses of uniform's trainings of several lengths.
    """
    for terms in AXES:
        for arm in growth.arms(data):
            yield from _curve(data, growth.Training(arm), terms)
        curves = [list(_curve(data, training, terms)) for training in growth.uniform_lengths(data)]
        ends = {row.amount: row for curve in curves if curve for row in (max(curve, key=_amount),)}
        if len(ends) > 1:
            yield from (
                replace(row, arm=UNIFORM_TRAINING, against=FRONTIER) for row in sorted(ends.values(), key=_amount)
            )


def _curve(data: ReportData, training: growth.Training, terms: str) -> Iterator[Score]:
    looks = []
    for seed in growth.seeds(data, training):
        spent = outlay(data, training, seed, terms)
        if spent is not None and (noted := growth.losses(data, training, seed)):
            looks.append([(cost_by(spent, step), loss) for step, loss in noted.items()])
    for together in zip(*looks, strict=False):
        values = [loss for _, loss in together]
        bounds = (min(values), max(values)) if len(values) > 1 else ()
        cost = fmean(cost for cost, _ in together)
        yield Score(TRAINING, "loss", fmean(values), *bounds, arm=training.arm, condition=terms, amount=cost)


def _relative(data: ReportData, training: growth.Training, steps: int, *, timed: bool) -> Pieces:
    known = growth.step_shares(data, training.arm, PREDICTED) if training.share is None else {}
    known |= growth.step_shares(data, training.arm, MEASURED) if timed and training.share is None else {}
    if not known or len(known) < len(growth.phases(data, training.arm)):
        return ((0, steps, 1.0),)
    return stretched(tuple((phase.first, phase.end, row.value) for phase, row in known.items()), steps)


def _scaled(pieces: Pieces, factor: float) -> Pieces:
    return tuple((first, end, factor * cost) for first, end, cost in pieces)


def _uniform_pace(data: ReportData) -> float | None:
    timed: Sequence[float] = [
        row.value
        for each in growth.uniform_lengths(data)
        for row in growth.by_seed(data, TRAINING, "step_seconds", each).values()
    ]
    return median(timed) if timed else None


def _amount(row: Score) -> float:
    return row.amount or 0.0
