"""A growth run read from its rows: variants and lengths, phases, tuning, and its headline result.

A variant is a training schedule: `uniform`, or one in phases. A `Training` with a share of the whole budget is a point
on the frontier of its variant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layerwise.page.arms import in_reading_order
from layerwise.page.data import ReportData
from layerwise.page.show import ABSENT
from layerwise.page.text.number_format import between, tidy
from layerwise.page.text.wording import counted, listed, sentence
from layerwise.page.trained import over_seeds
from layerwise.results import vocabulary as vocab
from layerwise.results.estimate import Estimate
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

MEASURES = (vocab.SCHEDULE, vocab.GROWTH, vocab.ACCOUNTING, vocab.RATES, vocab.HELD_OUT)
"""Measures that no other kind of run has; the training of a growth run is told with them."""

TERMS: dict[str, str] = {
    vocab.FLOPS: "at equal FLOPs",
    vocab.SECONDS: "at equal seconds",
}
"""The costs at which an arm is compared with uniform, the one that decides first."""

CONTROLS: dict[str, str] = {
    "permuted": "its layer roles permuted",
    "reversed": "its layer roles reversed",
    "random": "its layers drawn at random",
}
"""The arms that are the planned schedule with its roles given to other layers, the one that decides first."""

PUBLISHED, PLANNED = "published", ("importance", "published")
"""Which schedule the study is about, where no control tells."""


@dataclass(frozen=True, slots=True)
class Training:
    """A schedule, trained for the whole budget, or for a `share` of it."""

    arm: str
    share: float | None = None

    @property
    def name(self) -> str:
        """As tables call it.

        >>> Training("uniform", 1.25).name
        'uniform@1.25'
        """
        return self.arm if self.share is None else f"{self.arm}@{self.share:g}"


UNIFORM = Training(vocab.UNIFORM_TRAINING)


@dataclass(frozen=True, slots=True, order=True)
class PhaseSteps:
    """A phase of a training: its first step, the step that it ends before, and its name."""

    first: int
    end: int
    name: str

    @property
    def where(self) -> dict[str, Any]:
        return {"condition": self.name, "amount": float(self.end)}


@dataclass(frozen=True, slots=True)
class Tuning:
    """The sweep of one arm: rate (or warm-up) to validation loss, in ascending order, and the one that was chosen."""

    arm: str
    losses: Mapping[float, Score]
    chosen: float

    @property
    def at_end(self) -> bool:
        return len(self.losses) > 1 and self.chosen in (min(self.losses), max(self.losses))


# -- what was trained ---------------------------------------------------------------------------------------------


def is_growth(data: ReportData) -> bool:
    return bool(data.rows.where(measure=MEASURES))


def arms(data: ReportData) -> tuple[str, ...]:
    """The schedules that were trained for the whole budget, in reading order; none in a run of another kind."""
    if not is_growth(data):
        return ()
    trained = (
        *data.rows.where(measure=vocab.TRAINING, condition=None),
        *data.rows.where(measure=(vocab.HELD_OUT, vocab.EPOCHS), amount=None),
    )
    planned = data.rows.where(measure=(vocab.SCHEDULE, vocab.ACCOUNTING))
    return in_reading_order(row.arm for row in (*trained, *planned) if row.arm is not None)


def lengths(data: ReportData) -> tuple[Training, ...]:
    known = {
        Training(str(row.arm), row.amount)
        for row in data.rows.where(measure=(vocab.HELD_OUT, vocab.EPOCHS), amount=PRESENT)
    }
    return tuple(sorted(known, key=lambda each: (each.arm != vocab.UNIFORM_TRAINING, each.arm, each.share)))


def trainings(data: ReportData) -> tuple[Training, ...]:
    return (*map(Training, arms(data)), *lengths(data))


def uniform_lengths(data: ReportData) -> tuple[Training, ...]:
    return (UNIFORM, *(each for each in lengths(data) if each.arm == vocab.UNIFORM_TRAINING))


def rows_of(data: ReportData, measure: str, metric: str, training: Training) -> Rows:
    length: dict[str, Any] = {"amount": training.share}
    if measure == vocab.TRAINING:
        length = {"amount": None, "condition": vocab.of_budget(training.share), "part": None}
    return data.rows.where(measure=measure, metric=metric, arm=training.arm, **length)


def seeds(data: ReportData, training: Training) -> tuple[int, ...]:
    noted = data.rows.where(measure=vocab.TRAINING, arm=training.arm, condition=vocab.of_budget(training.share))
    return tuple(sorted({*noted.axis("seed"), *rows_of(data, vocab.HELD_OUT, "nll", training).axis("seed")}))


def by_seed(data: ReportData, measure: str, metric: str, training: Training) -> dict[int, Score]:
    return rows_of(data, measure, metric, training).where(seed=PRESENT).along("seed")


def of_training(data: ReportData, measure: str, metric: str, training: Training) -> Score | None:
    rows = rows_of(data, measure, metric, training)
    return over_seeds(rows) if rows else None


def held_out(data: ReportData, training: Training) -> Score | None:
    return of_training(data, vocab.HELD_OUT, "nll", training)


def token_pairs(data: ReportData) -> Score | None:
    return data.rows.one(measure=vocab.NULL, metric="nll", arm=vocab.TOKEN_PAIRS)


# -- schedules ----------------------------------------------------------------------------------------------------


def phases(data: ReportData, arm: str) -> tuple[PhaseSteps, ...]:
    rows = data.rows.where(measure=(vocab.SCHEDULE, vocab.ACCOUNTING), arm=arm)
    ends = sorted({(int(row.amount or 0), str(row.condition)) for row in rows})
    firsts = (0, *(end for end, _ in ends))
    return tuple(PhaseSteps(first, end, name) for first, (end, name) in zip(firsts, ends, strict=False))


def shares(data: ReportData, arm: str, phase: PhaseSteps) -> dict[int | str, float]:
    rows = data.rows.where(measure=vocab.SCHEDULE, metric=vocab.SHARE, arm=arm, **phase.where)
    return {str(row.part) if row.layer is None else row.layer: row.value for row in rows}


def step_shares(data: ReportData, arm: str, metric: str) -> dict[PhaseSteps, Score]:
    rows = data.rows.where(measure=vocab.ACCOUNTING, metric=metric, arm=arm)
    shown = {phase: rows.one(**phase.where) for phase in phases(data, arm)}
    return {phase: row for phase, row in shown.items() if row is not None}


def epochs(data: ReportData, training: Training) -> Rows:
    return rows_of(data, vocab.EPOCHS, vocab.EPOCHS, training)


def tunings(data: ReportData, setting: str = vocab.LEARNING_RATE) -> tuple[Tuning, ...]:
    rows = data.rows.where(measure=vocab.RATES, condition=setting, amount=PRESENT)
    chosen = {row.arm: row.amount for row in rows.where(metric="chosen", value=1.0) if row.amount is not None}
    losses = rows.where(metric="nll", arm=tuple(chosen)).by("arm").items()
    return tuple(Tuning(arm, dict(sorted(own.along("amount").items())), chosen[arm]) for arm, own in losses)


# -- differences and the headline ---------------------------------------------------------------------------------


def compared_rows(data: ReportData, training: Training) -> Rows:
    own = {"arm": training.arm, "amount": training.share}
    return data.rows.where(measure=vocab.GROWTH, against=vocab.UNIFORM_TRAINING, **own)


def against(
    data: ReportData,
    training: Training,
    other: str = vocab.UNIFORM_TRAINING,
    terms: str = vocab.FLOPS,
    metric: str = vocab.DIFFERENCE,
) -> Score | None:
    return data.rows.one(
        measure=vocab.GROWTH, metric=metric, arm=training.arm, amount=training.share, against=other, condition=terms
    )


def planned(data: ReportData) -> str | None:
    compared = data.rows.where(measure=vocab.GROWTH, metric=(vocab.DIFFERENCE, vocab.LOSS_RATIO), amount=None)
    controlled = compared.where(against=tuple(CONTROLS)).axis("arm")
    others = [arm for arm in compared.where(against=vocab.UNIFORM_TRAINING).axis("arm") if arm not in CONTROLS]
    preferred = [arm for arm in PLANNED if arm in others]
    return next(iter([*controlled, *preferred, *others]), None)


def headline_arm(data: ReportData) -> str | None:
    return PUBLISHED if PUBLISHED in arms(data) else planned(data)


def saved(data: ReportData, arm: str, terms: str) -> Estimate | None:
    """Return what the variant saves to reach uniform's loss, or a one-sided bound; None without a measured interval."""
    exact, most, least = _savings(compared_rows(data, Training(arm)).where(condition=terms))
    if (estimate := Estimate.read_bounded(exact)) is not None:
        return estimate
    if most is not None:
        return Estimate(most.value, -math.inf, most.value)
    return None if least is None else Estimate(least.value, least.value, 1.0)


def saved_in_words(data: ReportData, training: Training, terms: str) -> str:
    """The saving as it is printed, in hundredths; where seeds are censored, how many and what that leaves."""
    return saving_text(compared_rows(data, training).where(condition=terms))


def saving_text(rows: Rows) -> str:
    exact, most, least = _savings(rows)
    if exact is not None:
        return f"{percents(exact)} %"
    if most is not None:
        return f"{hundredths(most.value)} % at most (not reached with {_censored(rows, vocab.NEVER)})"
    if least is not None:
        return (
            f"{hundredths(least.value)} % at least (reached before the first look with {_censored(rows, vocab.SOONER)})"
        )
    return ABSENT


def _savings(rows: Rows) -> tuple[Score | None, ...]:
    return tuple(rows.one(metric=metric) for metric in (vocab.SAVING, vocab.SAVING_AT_MOST, vocab.SAVING_AT_LEAST))


def _censored(rows: Rows, metric: str) -> str:
    count = rows.value(metric=metric)
    return "a seed" if count is None else counted(int(count), "seed")


def how_read(data: ReportData, arm: str) -> str:
    rows = data.rows.where(measure=vocab.GROWTH, metric=vocab.READ_OFF, arm=arm, amount=None)
    count = max((int(row.value) for row in rows), default=0)
    if count > 1:
        return f"read off its trainings of {count} lengths, each decayed to its end"
    return "read off the course of its loss, whose rate has not come down yet"


def nulls_in_words(data: ReportData) -> str:
    """The table of token pairs, and uniform with its warm-up, as a sentence; empty where neither was measured."""
    uniform, pairs = held_out(data, UNIFORM), token_pairs(data)
    parts = [] if uniform is None else [f"uniform{_warmup(data)} ends at {tidy(uniform.value)} nats per token"]
    parts += [] if pairs is None else [f"a table of token pairs at {tidy(pairs.value)}"]
    return sentence(listed(parts)) if parts else ""


def _warmup(data: ReportData) -> str:
    tried = next((tuning for tuning in tunings(data, vocab.WARMUP) if tuning.arm == vocab.UNIFORM_TRAINING), None)
    if tried is None:
        return " (its warm-up not tuned)"
    tested = listed([f"{share:g}" for share in tried.losses])
    end = ", the end of them" if tried.at_end else ""
    return f" (its warm-up {tried.chosen:g} of the steps, of {tested} tried{end})"


def percents(score: Score) -> str:
    low, high = (None if bound is None else 100 * bound for bound in (score.low, score.high))
    return between(100 * score.value, low, high)


def hundredths(value: float) -> str:
    return tidy(round(100 * value, 1))
