"""Training runs: loss by step, costs and tuning, as a section of several pages and as a separate page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from statistics import fmean

from layerwise.page.data import ReportData
from layerwise.page.derived.growth import MEASURES as GROWTH_MEASURES
from layerwise.page.derived.robustness import MEASURES, group_by_variant
from layerwise.page.figures.frame import Figure, Trace, make_figure, scatter, series_style
from layerwise.page.figures.palette import assign_colors, fade, sort_variants
from layerwise.page.formatting import (
    ABSENT,
    describe_incomplete,
    format_number,
    format_value,
    lookup_format,
    make_variant_tiles,
)
from layerwise.page.kind import Column, CustomTable, Kind, Part, Pivot, Section, Text
from layerwise.page.marks import Mark
from layerwise.page.table import Table
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import TRAIN_LOSS, TRAINING, TUNING, VALIDATION_LOSS

HEIGHT = 420
LOSSES = {VALIDATION_LOSS: "validation loss", TRAIN_LOSS: "training loss"}
FACTS = {"steps": "steps", "epochs": "epochs", "seconds": "seconds", "best_step": "best step", "examples": "examples"}
OTHERS = ("masked_lm", "seed_agreement", *GROWTH_MEASURES)


def model_name(row: Score) -> str:
    share = "" if row.share is None else f"{row.share:g} of the budget"
    layers = "" if row.kept is None else f"{row.kept} layers"
    return f"{', '.join(filter(None, (row.variant, share, layers)))}/{row.seed}"


@dataclass(frozen=True, kw_only=True)
class LossByStep(Mark):
    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """Plot the loss by step of every model, and the mean of a variant if its models differ only in the seed."""
        seeds, means = [], []
        for variant, group in rows.by("variant").items():
            curves: dict[str, dict[int, float]] = {}
            for row in group:
                curves.setdefault(model_name(row), {})[row.step or 0] = row.value
            seeds += [
                _curve(variant, slots.get(variant, 0), dict(sorted(group.items())), name)
                for name, group in curves.items()
            ]
            if len({(row.share, row.kept) for row in group}) == 1:
                means.append(_mean(variant, slots.get(variant, 0), curves))
        y = {"title": LOSSES[rows[0].metric], "type": "log"}
        return make_figure(HEIGHT, [*seeds, *means], x={"title": "step", "rangemode": "tozero"}, y=y)


def read_losses(data: ReportData) -> Iterator[Score]:
    for metric in LOSSES:
        yield from group_by_variant(data.rows.where(measure=TRAINING, metric=metric, step=PRESENT))


def find_unfinished_trainings(data: ReportData) -> list[str]:
    run = data.rows.where(measure=TRAINING, seed=PRESENT)
    begun, ended = (
        {model_name(row) for row in run.where(metric=metrics)} for metrics in ((TRAIN_LOSS, VALIDATION_LOSS), "steps")
    )
    return sorted(begun - ended)


def describe_unfinished(data: ReportData) -> str | None:
    return describe_incomplete((find_unfinished_trainings(data), "training run"))


def read_seeds(data: ReportData) -> dict[str, set[int]]:
    rows = data.rows.where(measure=(*MEASURES, TRAINING))
    grouped = rows.by("variant")
    return {variant: set(grouped[variant].axis("seed")) for variant in sort_variants(grouped)}


def make_training_tiles(data: ReportData) -> Iterable[tuple[str, str]]:
    return make_variant_tiles(variants := read_seeds(data), variants)


def _facts(data: ReportData) -> Rows:
    rows = group_by_variant(data.rows.where(measure=TRAINING, step=None, seed=PRESENT, metric=tuple(FACTS)))
    trained = Rows(replace(row, variant=model_name(row)) for row in rows)
    return trained.where(variant=trained.where(metric="steps").axis("variant"))


def list_variant_losses(data: ReportData) -> Table:
    rows = Rows(read_losses(data))
    body = []
    for variant, group in rows.by("variant").items():
        validated = group.where(metric=VALIDATION_LOSS)
        models = {model_name(row) for row in group}
        last = max((row.step or 0 for row in group.where(metric=TRAIN_LOSS)), default=None)
        best = min((row.value for row in validated), default=None)
        cells = (ABSENT if last is None else f"{last:,}", ABSENT if best is None else format_number(best))
        body.append((variant, str(len(models)), *cells))
    return Table(("variant", "seeds", "last step", "best validation loss"), tuple(body))


def _answer(data: ReportData) -> str:
    best = min(data.rows.where(measure=TRAINING, metric=VALIDATION_LOSS), key=lambda row: row.value, default=None)
    return (
        ""
        if best is None
        else f"{best.variant} has the smallest validation loss of any seed: {format_number(best.value)}."
    )


def describe_tuning(rows: Iterable[Score]) -> Iterator[str]:
    run = Rows(rows)
    for row in run.where(metric=("chosen", "chosen_at_end")):
        tried = run.where(variant=row.variant, metric="validation_nll")
        rates, batches = tried.where(batch_size=row.batch_size).axis("learning_rate"), sorted(tried.axis("batch_size"))
        loss = tried.value(learning_rate=row.learning_rate, batch_size=row.batch_size)
        text = f"{row.variant}: validation selected learning rate {row.learning_rate:g} and batch size {row.batch_size}"
        text += "" if loss is None else f" (loss {format_number(loss)})"
        if len(rates) > 1 and row.metric == "chosen_at_end":
            text += "; not tuned, because the rate is at the edge of the grid"
        if len(batches) > 1 and row.batch_size in (batches[0], batches[-1]):
            side = "smallest" if row.batch_size == batches[0] else "largest"
            text += f"; the batch size is the {side} of {', '.join(map(str, batches))}"
        yield f"{text}."


PARTS: tuple[Part, ...] = (
    LossByStep(
        name="training",
        derive=read_losses,
        series="variant",
        slots=assign_colors,
        legend="Variants",
        choices={"Loss": "metric"},
        words=lookup_format(LOSSES),
    ),
    Text(lambda data: describe_tuning(data.rows.where(measure=TUNING))),
    Pivot(
        name="tuning",
        where={"measure": TUNING, "metric": "validation_nll"},
        words=format_value,
        folded=True,
        rows={"variant": "variant", "batch size": "batch_size", "learning rate": "learning_rate"},
        columns=(Column("validation loss", "validation_nll"),),
    ),
    Pivot(
        name="every-training",
        derive=_facts,
        rows={"training run": "variant"},
        folded=True,
        columns=tuple(Column(head, metric) for metric, head in FACTS.items()),
    ),
)
SELECTED = Text(lambda data: ("The checkpoint with the best validation loss was tested.",), terminal=False)
TRAINING_SECTION = Section(anchor=TRAINING, prose="training", parts=PARTS)

TESTED_SECTION = replace(TRAINING_SECTION, parts=(*PARTS, SELECTED))
"""The section of runs that test the checkpoint with the best validation loss."""

TRAINED = Kind(
    name="training",
    rank=4,
    measures=(TRAINING,),
    present=lambda data: bool(data.rows.where(measure=TRAINING)) and not data.rows.where(measure=(*MEASURES, *OTHERS)),
    answer=_answer,
    tiles=make_training_tiles,
    unfinished=describe_unfinished,
    following=lambda data: ("To measure the robustness of the variants: layerwise robustness RUN",),
    sections=(replace(TRAINING_SECTION, parts=(*PARTS, SELECTED, CustomTable(table=list_variant_losses))),),
)


def average_curves(seeds: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """Return the mean over seeds at each step.

    >>> average_curves({"a/0": {10: 1.0, 20: 0.5}, "a/1": {10: 3.0}})
    {10: 2.0, 20: 0.5}
    """
    steps = sorted({step for losses in seeds.values() for step in losses})
    return {step: fmean(losses[step] for losses in seeds.values() if step in losses) for step in steps}


def _curve(variant: str, slot: int, losses: Mapping[int, float], name: str) -> Trace:
    color = fade(series_style(slot)[0], 0.4)
    return scatter(
        x=list(losses),
        y=list(losses.values()),
        mode=_mode(losses),
        line={"color": color, "width": 0.9},
        marker={"color": color},
        legendgroup=variant,
        name=escape(name),
    )


def _mode(losses: Mapping[int, float]) -> str:
    return "lines" if len(losses) > 1 else "markers"


def _mean(variant: str, slot: int, seeds: Mapping[str, Mapping[int, float]]) -> Trace:
    (color, _, symbol), mean = series_style(slot), average_curves(seeds)
    averaged = f"mean of {len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    return scatter(
        x=list(mean),
        y=list(mean.values()),
        mode=_mode(mean),
        line={"color": color, "width": 2.2},
        marker={"color": color, "symbol": symbol},
        legendgroup=variant,
        name=escape(variant),
        text=[
            f"<b>{escape(variant)}</b>, step {step}<br>{format_number(loss)}, {averaged}" for step, loss in mean.items()
        ],
    )
