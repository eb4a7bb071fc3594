"""The section about the cost of quantizing each layer."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.page.data import ReportData
from layerwise.page.derived import bits
from layerwise.page.kind import Part, Pivot, Section
from layerwise.page.marks import Bars, Heat
from layerwise.page.show import DIFFERENCE, SIGNED
from layerwise.results import vocabulary as vocab
from layerwise.results.selection import Rows


def bits_parts(data: ReportData) -> Iterator[Part]:
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


BITS = Section(anchor=vocab.BITS, needs=lambda data: any(bits.by_layer(data)), parts=bits_parts)
