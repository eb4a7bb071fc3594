"""Page sections of a diagnosis about weights: differences between layers, and predictions from neighboring layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.formatting import DIFFERENCE, SIGNED, Format, format_null
from layerwise.page.kind import Column, Derive, Pivot, Section, SideBySide, Text
from layerwise.page.marks import Dots, Lines
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

EVERY = "all tensor types"
HALVES = {None: "whole layer", "attn": "attention", "mlp": "MLP"}
INDEPENDENT = -0.5
"""The correlation of successive differences of independent layers of equal norm."""
LAG_STRUCTURE = {
    "smooth": "the weights change smoothly",
    "no_lag_structure": "no different from random orders",
    "oscillating": "the weights oscillate",
    "inconclusive": "inconclusive",
}
HELD_OUT = {"heldout_rows_r2": "held-out rows", "heldout_layers_r2": "held-out layers"}
FLOOR = -1.0
"""Lower values of R² are drawn at this value, because R² has no lower bound."""
MIN_DAMAGE = 0.05
"""Shares of a damage are shown only if the damage is at least this large (nats/token)."""
ALL_LAYERS, IN_SAMPLE = "layers", "in sample"
SLOTS = {ALL_LAYERS: 0, **dict.fromkeys(HELD_OUT.values(), 0), IN_SAMPLE: 1}
NULL_SLOT = 5
R2 = Format(axis="R²")
SETS = {"set": "spread evenly", "adjacent": "adjacent", "inner": "all but first and last"}


def list_by_type(measure: str, *metrics: str) -> Derive:
    def rows(data: ReportData) -> Iterator[Score]:
        own = data.rows.where(measure=measure, metric=metrics)
        for part in (None, *sorted(own.axis("part"))):
            yield from (replace(row, part=part or EVERY) for row in own.where(part=part))

    return rows


def _select_lag_one(data: ReportData) -> Iterator[Score]:
    rows = Rows(list_by_type(vocab.DELTAS, "correlation")(data)).where(distance=1)
    yield from (replace(row, variant=ALL_LAYERS) for row in rows.where(against=None))
    yield from _name_nulls(rows.where(against=(vocab.SHUFFLED, vocab.RANDOM_INIT)))


def _name_nulls(rows: Iterable[Score]) -> Iterator[Score]:
    return (replace(row, variant=format_null(str(row.against)), against=None) for row in rows)


def _list_slots(names: Iterable[str]) -> dict[str, int]:
    return {name: SLOTS.get(name, NULL_SLOT) for name in names}


def draw_lag_structure(data: ReportData) -> Iterator[str]:
    for kind, words in LAG_STRUCTURE.items():
        row = data.rows.one(measure=vocab.DELTAS, metric=kind, part=None)
        if row is not None:
            away = SIGNED.text(row)
            yield f"Verdict over {EVERY}: {words}."
            yield f"With layers scaled to equal norm, the correlation at lag 1 minus that of random orders is {away}."


def list_explained(data: ReportData) -> Iterator[Score]:
    rows = Rows(list_by_type(vocab.PREDICTABILITY, "in_sample_r2", *HELD_OUT)(data)).where(layer=None)
    in_sample = rows.where(metric="in_sample_r2")
    for metric, words in HELD_OUT.items():
        own = rows.where(metric=metric)
        if not own.where(against=None):
            continue
        nulls = sorted(own.where(against=PRESENT), key=lambda row: str(row.against))
        for name, of in ((IN_SAMPLE, in_sample), (words, own)):
            yield from (replace(row, condition=words, variant=name) for row in of.where(against=None))
        for row in _name_nulls((*nulls, *in_sample.where(against=vocab.P_OVER_N))):
            yield replace(row, condition=words)


def _format_share(rows: Rows) -> str:
    joint = rows.one(metric="joint")
    damaged = joint is not None and joint.value >= MIN_DAMAGE
    return SIGNED.text(rows.one(metric="share") if damaged else None)


def list_joint_costs(claim: str, rows: Mapping[str, str], words: Callable[[object], str]) -> Pivot:
    """Return a table that compares changing several layers together with changing each of them alone.

    The last of the columns `rows` is the size of the change.
    """
    *_, size = rows.values()
    return Pivot(
        rows=rows,
        words=words,
        order=lambda line: (line[0] or "", line[1] or 0.0),
        terminal=False,
        where={"measure": vocab.CONTRAST, "claim": claim, size: PRESENT},
        columns=(
            Column("together (nats/token)", "joint", SIGNED),
            Column("sum of single costs", "singles", SIGNED),
            Column("together minus sum", "excess", SIGNED),
            Column("together minus sum, as a share of together", text=_format_share),
        ),
    )


def list_written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else SETS.get(str(value), str(value).replace("_", " "))


DELTAS_SECTION = Section(
    anchor=vocab.DELTAS,
    needs={"measure": vocab.DELTAS, "metric": "correlation"},
    parts=(
        Text(draw_lag_structure, terminal=False),
        Lines(
            name="deltas-correlation",
            title="Correlation of weight differences, by lag",
            derive=list_by_type(vocab.DELTAS, "correlation"),
            choices={"Tensor type": "part"},
            words=str,
            nulls=format_null,
            x="distance",
            across="lag",
            at="lag {}",
            show=Format(axis="correlation", reference=INDEPENDENT),
        ),
        Dots(
            name="deltas-types",
            derive=_select_lag_one,
            y="part",
            series="variant",
            words=str,
            legend="Layers and nulls",
            slots=_list_slots,
            show=Format(axis="correlation at lag 1", reference=INDEPENDENT),
        ),
    ),
)

PREDICTION_SECTION = Section(
    anchor=vocab.PREDICTABILITY,
    parts=(
        Dots(
            name="predictability-r2",
            derive=list_explained,
            y="part",
            series="variant",
            legend="Predictions and nulls",
            choices={"Held out": "condition"},
            words=str,
            show=R2,
            floor=FLOOR,
            slots=_list_slots,
        ),
        SideBySide(
            (
                Lines(
                    name="predictability-use",
                    show=DIFFERENCE,
                    sqrt_scale="optional",
                    where={"measure": vocab.PREDICTABILITY, "metric": "predicted_weight_loss", "layer": PRESENT},
                    nulls=format_null,
                ),
                Lines(
                    name="predictability-sets",
                    show=DIFFERENCE,
                    where={"measure": vocab.PREDICTABILITY, "metric": "predicted_weight_loss", "condition": "set"},
                    x="affected",
                    nulls=format_null,
                    across="number of predicted layers",
                    at="{} layers predicted",
                    sqrt_scale="optional",
                ),
            )
        ),
        replace(
            list_joint_costs(
                "error_accumulation", {"predicted layers": "condition", "how many": "affected"}, list_written
            ),
            folded=True,
            note="joint",
            title="Many predicted layers together",
        ),
    ),
)
