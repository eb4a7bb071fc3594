"""Metrics of trainings in phases, as rows: schedules, costs, held-out losses and rates.

Measures: `schedule` (the share of its full cost that a layer has in a phase), `accounting` (a step's cost as a share of
a uniform one, `predicted` in operations and `measured` in seconds), `held_out` (nats per token), `null` (tables of
tokens on the same text), `rates` (validation loss at every rate), `epochs` (how often a layer read the text while it
learned) and `growth` (an arm compared with another, see `layerwise.train.cost.frontier`). The `condition` of a row of a
phase is its name, the `amount` the step that it ends before. Seconds are the median step of a phase times its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from layerwise.data.batches import IGNORED
from layerwise.data.splits import Splits
from layerwise.data.text.language_modelling import TokenWindows, evenly_spaced
from layerwise.errors import MeasureError
from layerwise.measure.interventions.accuracy import HeldOut, Losses
from layerwise.measure.language.bigram import BigramModel, Ids
from layerwise.measure.stats.grid import WHOLE
from layerwise.measure.stats.seeds import over_seeds
from layerwise.measure.stats.statistics import paired_bootstrap
from layerwise.measure.stats.strata import Strata
from layerwise.plan.schedule import GrowthSchedule, ModelCost, layer_shares
from layerwise.plan.schedule.cost import embedding_share, head_share, learned_steps, phase_shares
from layerwise.results.rows import Score
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import (
    ACCOUNTING,
    EMBEDDING_PART,
    EPOCHS,
    FEWEST_UNITS,
    GROWTH,
    HEAD_PART,
    HELD_OUT,
    LEARNING_RATE,
    LOSS_RATIO,
    MEASURED,
    NEVER,
    NULL,
    PREDICTED,
    RATES,
    READ_OFF,
    SCHEDULE,
    SHARE,
    SINGLE_TOKENS,
    SOONER,
    TIME_SAVED,
    TOKEN_PAIRS,
    TOKENS,
)
from layerwise.stack import load
from layerwise.train.cost.frontier import COSTS, CostPoint, Points, log_ratio, ratio_row, saving

TEST_WINDOWS = 512
"""Windows of the text that is held out, at most, spread evenly over it."""

TABLE_WINDOWS = 50_000
"""Windows of the text to train on that tables are counted on, at most, spread evenly over it."""


def schedule_rows(arm: str, schedule: GrowthSchedule, steps: int) -> list[Score]:
    rows = []
    for phase, (_, end) in zip(schedule.phases, schedule.bounds(steps), strict=True):
        own: dict[str, Any] = {"arm": arm, "condition": phase.name, "amount": float(end)}
        shares = enumerate(layer_shares(phase, schedule.depth))
        rows += [Score(SCHEDULE, SHARE, share, layer=layer, **own) for layer, share in shares]
        parts = {EMBEDDING_PART: embedding_share(phase), HEAD_PART: head_share(phase)}
        rows += [Score(SCHEDULE, SHARE, share, part=part, **own) for part, share in parts.items()]
    return rows


def accounting_rows(
    arm: str, schedule: GrowthSchedule, steps: int, cost: ModelCost, paces: Mapping[str, float], uniform: float | None
) -> list[Score]:
    """Return the cost of a step of every phase relative to uniform; `paces` and `uniform` are seconds per step.

    A phase that was too short to be timed has no measured share.
    """
    rows = []
    shares = phase_shares(schedule, cost)
    for phase, (_, end), predicted in zip(schedule.phases, schedule.bounds(steps), shares, strict=True):
        own: dict[str, Any] = {"arm": arm, "condition": phase.name, "amount": float(end)}
        rows.append(Score(ACCOUNTING, PREDICTED, predicted, **own))
        if uniform is not None and phase.name in paces:
            rows.append(Score(ACCOUNTING, MEASURED, paces[phase.name] / uniform, **own))
    return rows


def epoch_rows(
    arm: str, schedule: GrowthSchedule, steps: int, epochs: float, share: float | None = None
) -> list[Score]:
    """Return how often every layer read the text while it learned, in `steps` that read it `epochs` times.

    `share` is that of the whole budget, if the training has another.
    """
    return [
        Score(EPOCHS, EPOCHS, epochs * own / steps, arm=arm, layer=layer, amount=share)
        for layer, own in enumerate(learned_steps(schedule, steps))
    ]


def held_out_row(folder: Path, splits: Splits, device: str, **columns: Any) -> Score:
    """Return the nats/token of the model in `folder` on held-out documents; `columns` identify the model."""
    held_out = _held_out(splits)
    return _over_documents(HELD_OUT, held_out, held_out.evaluate(load(folder, device=device)), **columns)


def null_rows(splits: Splits) -> list[Score]:
    """Return the held-out loss of bigram and unigram baselines counted on the training text; nothing if not text."""
    train, validation = splits.train, splits.validation
    if not isinstance(train, TokenWindows) or not isinstance(validation, TokenWindows):
        return []
    windows = evenly_spaced(train, TABLE_WINDOWS).windows
    table = BigramModel.of((window.ids for window in windows), (window.ids for window in validation.windows))
    held_out = _held_out(splits)
    before, after, units = (np.concatenate(parts) for parts in zip(*_document_losses(held_out), strict=True))
    counted = np.bincount(units).astype(np.float64)
    tables = {TOKEN_PAIRS: table.nll(before, after), SINGLE_TOKENS: table.single_nll(after)}
    return [
        _over_documents(NULL, held_out, Losses(np.bincount(units, weights=nats).astype(np.float64), counted), arm=arm)
        for arm, nats in tables.items()
    ]


def _document_losses(held_out: HeldOut) -> Iterator[tuple[Ids, Ids, Ids]]:
    first = 0
    for batch in held_out.batches:
        ids, scored = batch["input_ids"].numpy(), batch["labels"].numpy()[:, 1:] != IGNORED
        units = np.broadcast_to(held_out.units[first : first + len(ids), None], scored.shape)
        yield ids[:, :-1][scored], ids[:, 1:][scored], units[scored]
        first += len(ids)


def _held_out(splits: Splits) -> HeldOut:
    windows = getattr(splits.test, "windows", None)
    owners = None if windows is None else [(window.task, window.document) for window in windows]
    return HeldOut.of(splits.test, splits.collate, owners=owners, limit=TEST_WINDOWS)


def _over_documents(measure: str, held_out: HeldOut, losses: Losses, **columns: Any) -> Score:
    seen = losses.counted > 0
    nats, tokens = losses.nll[seen], losses.counted[seen]
    low = high = None
    if seen.sum() >= FEWEST_UNITS:
        owners = [owner for owner, counted in zip(held_out.owners, seen, strict=True) if counted]
        # Images have no tasks.
        strata = Strata.labels_of({(*owner, WHOLE): 1 for owner in owners if isinstance(owner, tuple)})
        interval = paired_bootstrap([nats], tokens, seed=0, strata=strata if strata.size else None)
        low, high = float(interval.low[0]), float(interval.high[0])
    value = float(nats.sum() / tokens.sum())
    counted = {"documents": int(seen.sum()), "tokens": int(tokens.sum())}
    return Score(measure, "nll", value, low, high, **{**counted, **columns})


def arm_rows(rows: Iterable[Score]) -> list[Score]:
    """Held-out losses of arms: means over seeds with Student's interval; of one seed its own row, without the seed."""
    models = sorted((row for row in rows if row.measure == HELD_OUT and row.seed is not None), key=_arm)
    scores = []
    for _, group in groupby(models, key=_arm):
        own = list(group)
        values = [row.value for row in own]
        low, high = over_seeds(values, "", [(row.low, row.high) for row in own])
        scores.append(replace(own[0], seed=None, value=float(np.mean(values)), low=low, high=high))
    return scores


def rate_rows(arm: str, losses: Mapping[float, float], setting: str = LEARNING_RATE) -> list[Score]:
    """Return the validation loss at every value of a setting, and which value was chosen."""
    own: dict[str, Any] = {"arm": arm, "condition": setting}
    rows = [Score(RATES, "nll", loss, amount=value, **own) for value, loss in sorted(losses.items())]
    return [*rows, Score(RATES, "chosen", 1.0, amount=best_rate(losses), **own)]


def best_rate(losses: Mapping[float, float]) -> float:
    """The rate with the least validation loss; of two the lower."""
    return min(sorted(losses), key=losses.__getitem__)


def last_validation(record: TrainingRecord) -> float:
    """The validation loss that a training ended with. Raises `MeasureError` for one that was never validated."""
    losses = [moment.loss for moment in record.history if moment.kind == "validation"]
    if not losses:
        raise MeasureError(f"{record.arm}/{record.seed} was never validated, so its learning rate cannot be judged")
    return losses[-1]


def phase_paces(records: Sequence[TrainingRecord], schedule: GrowthSchedule) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for phase in schedule.phases:
        key = f"step_seconds {phase.name}"
        timed = [record.figures[key] for record in records if key in record.figures]
        if timed:
            seconds[phase.name] = median(timed)
    return seconds


def step_pace(records: Iterable[TrainingRecord]) -> float | None:
    """Seconds a step: the median over trainings, `None` where none was timed."""
    timed = [each.figures["step_seconds"] for each in records if "step_seconds" in each.figures]
    return median(timed) if timed else None


def seconds_of_steps(schedule: GrowthSchedule, steps: int, paces: Mapping[str, float], otherwise: float) -> float:
    """What the steps of a training take, phase by phase; a phase that was not timed takes `otherwise` a step."""
    bounds = schedule.bounds(steps)
    return sum(
        (end - first) * paces.get(phase.name, otherwise)
        for phase, (first, end) in zip(schedule.phases, bounds, strict=True)
    )


def point(record: TrainingRecord, loss: float, seconds: float) -> CostPoint:
    costs = {"tokens": record.figures["tokens"], "flops": record.figures["flops"], "seconds": seconds}
    return CostPoint(loss, costs)


def _arm(row: Score) -> tuple[str, float]:
    return str(row.arm), row.amount or 0.0


def losses_by_cost(
    record: TrainingRecord, schedule: GrowthSchedule, cost: ModelCost, paces: Mapping[str, float], otherwise: float
) -> list[CostPoint]:
    """Return a training's validation losses by cost, in order of time, with expected operations for random draws.

    `paces` are seconds a step by phase, `otherwise` that of phases not timed.
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
    bounds = schedule.bounds(steps)
    return sum(amount * max(0, min(step, end) - first) for amount, (first, end) in zip(each, bounds, strict=True))


def saving_rows(
    arm: str, trainings: Mapping[int, Sequence[CostPoint]], reference: Points, name: str, read_off: int
) -> list[Score]:
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
    """Return the reference's loss over the arm's, paired by seed; `share` is that of the whole budget, if different."""
    ratio = log_ratio(reference, losses)
    return ratio_row(GROWTH, LOSS_RATIO, ratio, arm=arm, against=name, condition=terms, amount=share)


def time_saved_row(arm: str, seconds: Mapping[int, float], reference: Mapping[int, float], name: str) -> Score:
    taken = ratio_row(GROWTH, TIME_SAVED, log_ratio(seconds, reference), arm=arm, against=name, condition=TOKENS)
    low, high = (None if bound is None else 1 - bound for bound in (taken.high, taken.low))
    return replace(taken, value=1 - taken.value, low=low, high=high)
