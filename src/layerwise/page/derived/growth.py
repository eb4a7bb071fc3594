"""Read the rows of a growth run: its variants, training lengths, tuning, and headline result.

A variant is a training schedule: `uniform`, or a schedule with several phases. Some variants are also trained for only
a share of the budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layerwise.page.data import ReportData
from layerwise.page.figures.palette import sort_variants
from layerwise.page.formatting import ABSENT, format_count, format_interval, format_number
from layerwise.page.trained import average_seeds
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

MEASURES = (vocab.SCHEDULE, vocab.GROWTH, vocab.ACCOUNTING, vocab.RATES, vocab.HELD_OUT)

COMPARED_COSTS: dict[str, str] = {
    vocab.FLOPS: "at equal FLOPs",
    vocab.SECONDS: "at equal seconds",
}
"""Costs at which a variant is compared with uniform training. The verdict uses the first one."""

CONTROLS: dict[str, str] = {
    "permuted": "its layer roles permuted",
    "reversed": "its layer roles reversed",
    "random": "its layers drawn at random",
}
"""Control variants: the planned schedule with its roles given to other layers. The verdict uses the first one."""

PUBLISHED, PLANNED = "published", ("importance", "published")
"""Variants that are preferred for the headline result if no control was trained."""


@dataclass(frozen=True, slots=True)
class Training:
    """The training runs of a variant (one per seed), for the full budget or for a `share` of it."""

    variant: str
    share: float | None = None

    @property
    def name(self) -> str:
        return self.variant if self.share is None else f"{self.variant}@{self.share:g}"


UNIFORM = Training(vocab.UNIFORM_TRAINING)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The tuning of a variant: the validation loss for each learning rate (or warm-up), and the chosen one."""

    variant: str
    losses: Mapping[float, Score]
    chosen: float

    @property
    def at_end(self) -> bool:
        return len(self.losses) > 1 and self.chosen in (min(self.losses), max(self.losses))


def is_growth(data: ReportData) -> bool:
    return bool(data.rows.where(measure=MEASURES))


def list_schedules(data: ReportData) -> tuple[str, ...]:
    if not is_growth(data):
        return ()
    trained = data.rows.where(measure=vocab.TRAINING, share=None) + data.rows.where(measure=vocab.HELD_OUT, share=None)
    planned = data.rows.where(measure=(vocab.SCHEDULE, vocab.ACCOUNTING))
    return sort_variants(row.variant for row in trained + planned if row.variant is not None)


def lengths(data: ReportData) -> tuple[Training, ...]:
    trainings = {
        Training(str(row.variant), row.share) for row in data.rows.where(measure=vocab.HELD_OUT, share=PRESENT)
    }
    return tuple(sorted(trainings, key=lambda each: (each.variant != vocab.UNIFORM_TRAINING, each.variant, each.share)))


def trainings(data: ReportData) -> tuple[Training, ...]:
    return (*map(Training, list_schedules(data)), *lengths(data))


def seeds(data: ReportData, training: Training) -> tuple[int, ...]:
    noted = data.rows.where(measure=vocab.TRAINING, variant=training.variant, share=training.share)
    held_out = data.rows.where(measure=vocab.HELD_OUT, variant=training.variant, share=training.share)
    return tuple(sorted({*noted.axis("seed"), *held_out.axis("seed")}))


def figure(data: ReportData, metric: str, training: Training) -> Score | None:
    length = {"step": None, "share": training.share, "phase": None}
    rows = data.rows.where(measure=vocab.TRAINING, metric=metric, variant=training.variant, **length)
    return average_seeds(rows) if rows else None


def held_out(data: ReportData, training: Training) -> Score | None:
    rows = data.rows.where(measure=vocab.HELD_OUT, metric="nll", variant=training.variant, share=training.share)
    return average_seeds(rows) if rows else None


def find_bigram_loss(data: ReportData) -> Score | None:
    return data.rows.one(measure=vocab.NULL, metric="nll", variant=vocab.BIGRAMS)


def tunings(data: ReportData, setting: str = vocab.LEARNING_RATE) -> tuple[Tuning, ...]:
    rows = data.rows.where(measure=vocab.RATES, **{setting: PRESENT})
    choices = {str(row.variant): getattr(row, setting) for row in rows.where(metric="chosen", value=1.0)}
    losses = rows.where(metric="nll", variant=tuple(choices)).by("variant").items()
    return tuple(
        Tuning(variant, dict(sorted(group.along(setting).items())), choices[variant]) for variant, group in losses
    )


def compared_rows(data: ReportData, training: Training, **columns: Any) -> Rows:
    conditions = {"variant": training.variant, "share": training.share, "against": vocab.UNIFORM_TRAINING, **columns}
    return data.rows.where(measure=vocab.GROWTH, **conditions)


def against(
    data: ReportData,
    training: Training,
    other: str = vocab.UNIFORM_TRAINING,
    terms: str = vocab.FLOPS,
    metric: str = vocab.DIFFERENCE,
) -> Score | None:
    return compared_rows(data, training, against=other, unit=terms, metric=metric).one()


def planned(data: ReportData) -> str | None:
    compared = data.rows.where(measure=vocab.GROWTH, metric=(vocab.DIFFERENCE, vocab.LOSS_RATIO), share=None)
    controlled = compared.where(against=tuple(CONTROLS)).axis("variant")
    others = [
        variant for variant in compared.where(against=vocab.UNIFORM_TRAINING).axis("variant") if variant not in CONTROLS
    ]
    preferred = [variant for variant in PLANNED if variant in others]
    return next(iter([*controlled, *preferred, *others]), None)


def find_headline_variant(data: ReportData) -> str | None:
    return PUBLISHED if PUBLISHED in list_schedules(data) else planned(data)


def saving_text(rows: Rows) -> str:
    """Format the share of the compute that is saved.

    It is a bound if some seeds never reached the loss of uniform training, or reached it before the first evaluation.
    """
    metrics = (vocab.SAVING, vocab.SAVING_AT_MOST, vocab.SAVING_AT_LEAST)
    exact, most, least = (rows.one(metric=metric) for metric in metrics)
    if exact is not None:
        return f"{percents(exact)} %"
    if most is not None:
        bound = f"at most {hundredths(most.value)} %" if most.value > 0.0 else "none"
        return f"{bound} ({_censored(rows, vocab.NEVER)} did not reach uniform's loss)"
    if least is not None:
        seeds = _censored(rows, vocab.SOONER)
        return f"at least {hundredths(least.value)} % ({seeds} reached uniform's loss before the first evaluation)"
    return ABSENT


def _censored(rows: Rows, metric: str) -> str:
    count = rows.value(metric=metric)
    return "a seed" if count is None else format_count(int(count), "seed")


def percents(score: Score) -> str:
    low, high = (None if bound is None else 100 * bound for bound in (score.low, score.high))
    return format_interval(100 * score.value, low, high)


def hundredths(value: float) -> str:
    return format_number(round(100 * value, 1))
