"""Weights in a diagnosis: how they change with depth, whether they can be predicted, and what they consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.kind import Beside, Column, Derive, Pivot, Says, Section
from layerwise.page.marks import Levels, Lines
from layerwise.page.show import DIFFERENCE, SIGNED, Show
from layerwise.page.text.wording import null_name
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

EVERY = "all tensor types"
HALVES = {None: "whole layer", "attn": "attention", "mlp": "MLP"}
INDEPENDENT = -0.5
"""The correlation of successive differences of independent layers of equal norm."""
LAG_STRUCTURE = {
    "smooth": "smooth",
    "no_lag_structure": "no lag structure",
    "oscillating": "oscillating",
    "unresolved": "inconclusive",
}
HELD_OUT = {"heldout_rows_r2": "held-out rows", "heldout_layers_r2": "held-out layers"}
SHARED = {
    "subspace": "Singular subspaces, stream side",
    "subspace_units": "Singular subspaces, unit side",
    "docs": "Similarity of units (DOCS)",
}
FLOOR = -1.0
"""R2 has no lower bound; what lies below is drawn here."""
LEAST_DAMAGE = 0.05
"""Nats per token: of less damage a share says nothing."""
R2 = Show(axis="R²")
SETS = {"set": "spread evenly", "adjacent": "neighbours", "inner": "all but the ends"}


def of_types(measure: str, *metrics: str) -> Derive:
    def rows(data: ReportData) -> Iterator[Score]:
        own = data.rows.where(measure=measure, metric=metrics)
        for part in (None, *sorted(own.axis("part"))):
            yield from (replace(row, part=part or EVERY) for row in own.where(part=part))

    return rows


def of_halves(measure: str, metric: str) -> Derive:
    """The rows of a metric, the layer whole and by halves in words; of the nulls that of the whole layer."""

    def rows(data: ReportData) -> Iterator[Score]:
        own = data.rows.where(measure=measure, metric=metric)
        for part, words in HALVES.items():
            yield from (replace(row, part=words) for row in own.where(part=part, against=None))
        yield from (replace(row, part=HALVES[None]) for row in own.where(part=None, against=PRESENT))

    return rows


def _at_lag_one(data: ReportData) -> list[Score]:
    rows = Rows(of_types(vocab.DELTAS, "correlation")(data)).where(amount=1)
    return [*rows.where(against=(vocab.SHUFFLED, vocab.RANDOM_TWIN)), *rows.where(against=None)]


def lag_structure(data: ReportData) -> Iterator[str]:
    """What the correlation at lag 1 shows beside random orders, over all types or over the first."""
    types = (None, *data.rows.where(measure=vocab.DELTAS, metric="correlation").axis("part"))
    for kind, words in LAG_STRUCTURE.items():
        row = data.rows.one(measure=vocab.DELTAS, metric=kind, part=types[0])
        if row is not None:
            away = SIGNED.text(row)
            yield f"Verdict over {EVERY}: {words}. Lag 1, norms divided out, beside random orders: {away}."


def explained(data: ReportData) -> Iterator[Score]:
    """R2 by type of weights: in sample and held out, for each way of holding out (`condition`), with its nulls."""
    rows = Rows(of_types(vocab.PREDICTABILITY, "in_sample_r2", *HELD_OUT)(data)).where(layer=None)
    in_sample = rows.where(metric="in_sample_r2")
    for metric, words in HELD_OUT.items():
        own = rows.where(metric=metric)
        if not own.where(against=None):
            continue
        nulls = sorted(own.where(against=PRESENT), key=lambda row: str(row.against))
        for row in (*nulls, *in_sample.where(against=vocab.P_OVER_N)):
            yield replace(row, condition=words)
        for name, of in (("in sample", in_sample), (words, own)):
            yield from (replace(row, condition=words, arm=name) for row in of.where(against=None))


def explained_by_depth(data: ReportData) -> Iterator[Score]:
    """The held-out R2 of every layer, for each way of holding out (`condition`)."""
    for metric, words in HELD_OUT.items():
        rows = data.rows.where(measure=vocab.PREDICTABILITY, metric=metric, layer=PRESENT, other=None, part=None)
        yield from (replace(row, condition=words, arm=words) for row in rows)


def shared(metric: str) -> Derive:
    """How much neighbours share, at the first of each pair; a null of all pairs together is level along the depth."""

    def rows(data: ReportData) -> Iterator[Score]:
        own = Rows(of_types(vocab.PREDICTABILITY, metric)(data))
        for part in own.axis("part"):
            of = own.where(part=part)
            pairs = Rows(row for row in of.where(layer=PRESENT) if row.other == (row.layer or 0) + 1)
            yield from pairs.where(against=None)
            for null in of.axis("against"):
                level = of.where(against=null, layer=None)
                spread = (replace(row, layer=layer) for row in level for layer in range(data.depth - 1))
                yield from pairs.where(against=null) or spread

    return rows


def _share(rows: Rows) -> str:
    joint = rows.one(metric="joint")
    damaged = joint is not None and joint.value >= LEAST_DAMAGE
    return SIGNED.text(rows.one(metric="share") if damaged else None)


def joint_costs(claim: str, what: str, size: str, words: Callable[[object], str] = str) -> Pivot:
    return Pivot(
        rows={what: "condition", size: "amount"},
        words=words,
        order=lambda line: (line[0] or "", line[1] or 0.0),
        terminal=False,
        where={"measure": vocab.CONTRAST, "claim": claim, "amount": PRESENT},
        columns=(
            Column("together (nats)", "joint", SIGNED),
            Column("one by one, added up", "singles", SIGNED),
            Column("more together", "excess", SIGNED),
            Column("share that single costs leave", text=_share),
        ),
    )


def written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else SETS.get(str(value), str(value).replace("_", " "))


def by_type(name: str, metric: str, title: str, measure: str, **fields: object) -> Lines:
    return Lines(
        name=name,
        title=title,
        derive=of_types(measure, metric),
        choices={"Tensor type": "part"},
        words=str,
        nulls=null_name,
        **fields,  # type: ignore[arg-type]
    )


DELTAS_SECTION = Section(
    anchor=vocab.DELTAS,
    needs={"measure": vocab.DELTAS, "metric": "correlation"},
    parts=(
        Says(lag_structure, terminal=False),
        Beside(
            (
                by_type(
                    "deltas-correlation",
                    "correlation",
                    "Correlation of weight differences, by lag",
                    vocab.DELTAS,
                    x="amount",
                    across="lag",
                    at="lag {}",
                    show=Show(axis="correlation", reference=INDEPENDENT),
                ),
                by_type(
                    "deltas-covariance",
                    "autocovariance",
                    "Autocovariance over depth, by lag",
                    vocab.DELTAS,
                    x="amount",
                    across="lag",
                    at="lag {}",
                    show=Show(axis="autocovariance"),
                ),
            )
        ),
        Levels(name="deltas-types", derive=_at_lag_one, show=Show(axis="correlation at lag 1", reference=INDEPENDENT)),
    ),
)

PREDICTION_SECTION = Section(
    anchor=vocab.PREDICTABILITY,
    parts=(
        Beside(
            (
                Levels(
                    name="predictability-r2",
                    derive=explained,
                    series="arm",
                    choices={"Held out": "condition"},
                    words=str,
                    show=R2,
                    floor=FLOOR,
                    slots={**dict.fromkeys(HELD_OUT.values(), 0), "in sample": 1},
                ),
                Lines(
                    name="predictability-depth",
                    derive=explained_by_depth,
                    series="arm",
                    choices={"Held out": "condition"},
                    words=str,
                    show=R2,
                    nulls=null_name,
                    height=310,
                    slots=dict.fromkeys(HELD_OUT.values(), 0),
                ),
            )
        ),
        Levels(
            name="predictability-norms",
            derive=lambda data: Rows(of_types(vocab.PREDICTABILITY, "norm_r2")(data)).where(layer=None),
            show=Show(axis="R² of a layer's norm"),
            floor=FLOOR,
        ),
        Beside(
            tuple(
                Lines(
                    name=f"predictability-{metric}",
                    title=title,
                    derive=shared(metric),
                    choices={"Tensor type": "part"},
                    words=str,
                    nulls=null_name,
                    across="",
                    at="layer {} and the next",
                    height=240,
                )
                for metric, title in SHARED.items()
            )
        ),
        Beside(
            (
                Lines(
                    name="predictability-use",
                    show=DIFFERENCE,
                    rooted=True,
                    where={"measure": vocab.PREDICTABILITY, "metric": "predicted_weight_loss", "layer": PRESENT},
                    nulls=null_name,
                    nats=True,
                ),
                Lines(
                    name="predictability-sets",
                    show=DIFFERENCE,
                    where={"measure": vocab.PREDICTABILITY, "metric": "predicted_weight_loss", "condition": "set"},
                    x="amount",
                    nulls=null_name,
                    across="layers predicted jointly",
                    at="{} layers predicted",
                    rooted=True,
                    nats=True,
                ),
            )
        ),
        replace(
            joint_costs("error_accumulation", "predicted layers", "how many", written),
            folded=True,
            note="joint",
            title="Many predicted layers together",
        ),
    ),
)
