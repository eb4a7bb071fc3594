"""Metrics of trainings in phases: their schedules, what phases cost, their held-out losses, their rates, as rows.

    schedule     ARM, `FIRST-END NAME`: the share of its full cost that every layer, `embedding` and `head` have
    accounting   ARM, `FIRST-END NAME`: what a step takes as a share of a uniform one: `predicted` in operations,
                 `measured` in seconds
    held_out     ARM/SEED and ARM, `test`: nats per token; the interval of one model is over documents, that of an arm
                 over its seeds
    null         `token pairs` and `single tokens`, `test`: what tables of them lose on the same text
    rates        ARM, a learning rate: `nll` of the validation at the end, and `chosen`; of warm-ups at the best rate
                 `warmup_nll` and `warmup_chosen`
    epochs       ARM, by layer: how many times the text was read while the layer learned
    growth       `ARM - uniform` at equal tokens, operations or seconds; see `layerwise.measure.cost.frontier`

Seconds are those of steps alone: the median step of a phase, over all trainings of the arm, times its steps. Validating
and saving are not the training's doing, and a median does not mind what else the machine was at for a moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

import numpy as np

from layerwise.data.batches import IGNORED
from layerwise.data.splits import Splits
from layerwise.data.text.language_modelling import TokenWindows, evenly_spaced
from layerwise.errors import MeasureError
from layerwise.measure.cost.frontier import CostPoint
from layerwise.measure.interventions.edge_pruning import Losses
from layerwise.measure.interventions.held_out import HeldOut
from layerwise.measure.language.bigram import BigramModel, Ids
from layerwise.measure.stats.seeds import over_seeds
from layerwise.measure.stats.statistics import paired_bootstrap
from layerwise.results.rows import Score
from layerwise.results.training_record import TrainingRecord
from layerwise.results.units import FEWEST_UNITS
from layerwise.schedule import GrowthSchedule, ModelCost, layer_shares
from layerwise.schedule.cost import embedding_share, head_share, phase_shares
from layerwise.schedule.exposure import learned_steps
from layerwise.stack import load

SCHEDULE, ACCOUNTING, HELD_OUT, RATES, TRAINING = "schedule", "accounting", "held_out", "rates", "training"
EPOCHS = "epochs"
NULL, PAIRS, SINGLES = "null", "token pairs", "single tokens"

WARMUP = "warmup_"
"""How the metrics of a sweep begin whose settings are the shares of the steps that are warmed up over."""

TEST_WINDOWS = 512
"""Windows of the text that is held out, at most, spread evenly over it."""

TABLE_WINDOWS = 50_000
"""Windows of the text to train on that tables are counted on, at most, spread evenly over it."""

TrainingRecords = Mapping[str, TrainingRecord]
"""Of finished models, by `ARM/SEED`."""


def phase_tasks(schedule: GrowthSchedule, steps: int) -> list[str]:
    """What rows call the phases of a training of so many steps: `0-120 gastrulation`."""
    bounds = schedule.bounds(steps)
    return [f"{first}-{end} {phase.name}" for phase, (first, end) in zip(schedule.phases, bounds, strict=True)]


def schedule_rows(arm: str, schedule: GrowthSchedule, steps: int) -> list[Score]:
    """What every part of the model costs in every phase, as a share of its full cost."""
    rows = []
    for phase, task in zip(schedule.phases, phase_tasks(schedule, steps), strict=True):
        shares = {str(layer): share for layer, share in enumerate(layer_shares(phase, schedule.depth))}
        shares |= {"embedding": embedding_share(phase), "head": head_share(phase)}
        rows += [Score(SCHEDULE, arm, task, part, share) for part, share in shares.items()]
    return rows


def accounting_rows(
    arm: str, schedule: GrowthSchedule, steps: int, cost: ModelCost, paces: Mapping[str, float], uniform: float | None
) -> list[Score]:
    """What a step of every phase takes against a uniform one; `paces` are seconds a step by phase, `uniform` its own.

    A phase that was too short to be timed has no measured share.
    """
    rows = []
    shares = phase_shares(schedule, cost)
    for phase, task, predicted in zip(schedule.phases, phase_tasks(schedule, steps), shares, strict=True):
        rows.append(Score(ACCOUNTING, arm, task, "predicted", predicted))
        if uniform is not None and phase.name in paces:
            rows.append(Score(ACCOUNTING, arm, task, "measured", paces[phase.name] / uniform))
    return rows


def epoch_rows(arm: str, schedule: GrowthSchedule, steps: int, epochs: float) -> list[Score]:
    """How often the text was read while every layer learned, in a training of `steps` that read it `epochs` times."""
    learned = learned_steps(schedule, steps)
    return [Score(EPOCHS, arm, "all", str(layer), epochs * own / steps) for layer, own in enumerate(learned)]


def held_out_row(subject: str, folder: Path, splits: Splits, device: str) -> Score:
    """The nats per token of the model in `folder` on documents that nothing was trained or chosen on."""
    losses = _held_out(splits).evaluate(load(folder, device=device))
    return _over_documents(HELD_OUT, subject, losses)


def null_rows(splits: Splits) -> list[Score]:
    """What tables of token pairs and of single tokens, counted on the text to train on, lose on the held-out text.

    Nothing for what is no text.
    """
    train, validation = splits.train, splits.validation
    if not isinstance(train, TokenWindows) or not isinstance(validation, TokenWindows):
        return []
    windows = evenly_spaced(train, TABLE_WINDOWS).windows
    table = BigramModel.of((window.ids for window in windows), (window.ids for window in validation.windows))
    held_out = _held_out(splits)
    before, after, units = (np.concatenate(parts) for parts in zip(*_document_losses(held_out), strict=True))
    counted = np.bincount(units).astype(np.float64)
    tables = {PAIRS: table.nll(before, after), SINGLES: table.single_nll(after)}
    return [
        _over_documents(NULL, subject, Losses(np.bincount(units, weights=nats).astype(np.float64), counted))
        for subject, nats in tables.items()
    ]


def _document_losses(held_out: HeldOut) -> Iterator[tuple[Ids, Ids, Ids]]:
    """Batch by batch the scored tokens with the ones before them, and the unit that each belongs to."""
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


def _over_documents(measure: str, subject: str, losses: Losses) -> Score:
    """The mean loss of a token, with its interval over documents where there are enough of them."""
    seen = losses.counted > 0
    nats, tokens = losses.nll[seen], losses.counted[seen]
    low = high = None
    if seen.sum() >= FEWEST_UNITS:
        interval = paired_bootstrap([nats], tokens, seed=0)
        low, high = float(interval.low[0]), float(interval.high[0])
    value = float(nats.sum() / tokens.sum())
    return Score(measure, subject, "test", "nll", value, low, high, documents=int(seen.sum()), tokens=int(tokens.sum()))


def arm_rows(rows: Iterable[Score]) -> list[Score]:
    """Held-out losses of arms: means over seeds with Student's interval; of one seed its own row, named as the arm."""
    models = sorted((row for row in rows if row.measure == HELD_OUT and "/" in row.subject), key=_arm)
    scores = []
    for arm, group in groupby(models, key=_arm):
        own = list(group)
        values = [row.value for row in own]
        low, high = over_seeds(values, "", [(row.low, row.high) for row in own])
        mean = float(np.mean(values))
        scores.append(
            Score(HELD_OUT, arm, "test", "nll", mean, low, high, documents=own[0].documents, tokens=own[0].tokens)
        )
    return scores


def rate_rows(arm: str, losses: Mapping[float, Sequence[float]], what: str = "") -> list[Score]:
    """The sweep of an arm: the validation loss of every rate, over the seeds that tried it, and which was chosen.

    `what` begins the metrics of another setting than the rate: `WARMUP`.
    """
    rows = []
    for rate, tried in sorted(losses.items()):
        low, high = over_seeds(tried)
        rows.append(Score(RATES, arm, f"{rate:g}", f"{what}nll", float(np.mean(tried)), low, high))
    return [*rows, Score(RATES, arm, f"{best_rate(means(losses)):g}", f"{what}chosen", 1.0)]


def means(losses: Mapping[float, Sequence[float]]) -> dict[float, float]:
    """Rate to its mean loss over the seeds that tried it."""
    return {rate: float(np.mean(tried)) for rate, tried in losses.items()}


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
    """Seconds a step of every phase: the median over the trainings of an arm, of those phases that were timed."""
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
    """Where a training ended, with what its steps took."""
    costs = {"tokens": record.figures["tokens"], "flops": record.figures["flops"], "seconds": seconds}
    return CostPoint(loss, costs)


def _arm(row: Score) -> str:
    return row.subject.rpartition("/")[0]
