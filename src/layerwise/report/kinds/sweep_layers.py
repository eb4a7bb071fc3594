"""What is said of single layers under several changes: how many bits each needs, and whether changes agree."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.data import ReportData
from layerwise.report.derived import bits, layer_agreement
from layerwise.report.kind import Column, Part, Pivot, Section
from layerwise.report.marks import Bars, Heat
from layerwise.report.show import DIFFERENCE, SIGNED, Show, adjusted_p
from layerwise.results import vocabulary as vocab
from layerwise.results.selection import Rows


def bits_parts(data: ReportData) -> Iterator[Part]:
    """A strip of layers for each type, what each layer costs with its interval, and the table."""
    cost = Rows(bits.by_layer(data)).where(part=bits.QUANTITIES[vocab.DELTA])
    yield Heat(
        name="bits",
        title="Each layer alone at each type",
        derive=lambda data: cost,
        y="condition",
        across="layer",
        diverging=True,
        root=True,
        show=DIFFERENCE,
    )
    yield Bars(
        name="bits-layer",
        derive=bits.by_layer,
        choices={"Quantity": "part", "Type": "condition"},
        height=240,
        show=DIFFERENCE,
        rooted=True,
    )
    yield Pivot(
        name="bits-table",
        derive=bits.by_layer,
        rows={"layer": "layer"},
        across="condition",
        split="part",
        show=SIGNED,
        folded=True,
        terminal=False,
    )


def _agreement(data: ReportData) -> Iterator[Part]:
    """Each two changes where there are more, and the table with what was measured."""
    several = sum(1 for _ in layer_agreement.matrix(data)) > 2
    if several:
        yield Heat(
            name="agreement",
            derive=layer_agreement.matrix,
            x="arm",
            y="against",
            across="",
            diverging=True,
            least=-1.0,
            most=1.0,
            numbers=True,
            number=lambda row: f"{row.value:.2f}",
            show=Show(decimals=2),
        )
    yield Pivot(
        name="agreement-table",
        title="Every pair",
        derive=layer_agreement.listed_pairs,
        rows={"change, or two": "condition"},
        folded=several,
        terminal=False,
        columns=(
            Column("as measured", vocab.SPEARMAN),
            Column("adjusted p", vocab.SPEARMAN, adjusted_p),
            Column("without noise", vocab.CORRECTED, SIGNED),
            Column("reliability", vocab.RELIABILITY),
        ),
    )


AGREEMENT = Section(
    anchor=vocab.LAYER_AGREEMENT, needs=lambda data: any(layer_agreement.matrix(data)), parts=_agreement
)
BITS = Section(anchor=vocab.BITS, needs=lambda data: any(bits.by_layer(data)), parts=bits_parts)
