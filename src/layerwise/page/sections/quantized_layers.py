"""The cost of quantizing each layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.formatting import DIFFERENCE, SIGNED
from layerwise.page.kind import Part, Pivot, Section
from layerwise.page.marks import Bars, Heat
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

QUANTITIES = {vocab.DELTA: "quantized alone", vocab.EXCESS: "beyond noise of the same norm"}


def bits_by_layer(data: ReportData) -> Iterator[Score]:
    rows = data.rows.where(measure=vocab.CONTRAST, claim=vocab.BITS, layer=PRESENT)
    for metric, words in QUANTITIES.items():
        for row in rows.where(metric=metric):
            yield replace(row, part=words)


def bits_parts(data: ReportData) -> Iterator[Part]:
    cost = Rows(bits_by_layer(data)).where(part=QUANTITIES[vocab.DELTA])
    yield Heat(
        name="bits",
        title="Each layer quantized alone",
        derive=lambda data: cost,
        y="condition",
        across="layer",
        diverging=True,
        sqrt_colors=True,
        show=DIFFERENCE,
    )
    yield Bars(
        name="bits-layer",
        derive=bits_by_layer,
        choices={"Quantity": "part", "Type": "condition"},
        height=240,
        show=DIFFERENCE,
        sqrt_scale="optional",
    )
    yield Pivot(
        name="bits-table",
        derive=bits_by_layer,
        rows={"layer": "layer"},
        across="condition",
        split="part",
        show=SIGNED,
        folded=True,
    )


BITS = Section(anchor=vocab.BITS, needs=lambda data: any(bits_by_layer(data)), parts=bits_parts)
