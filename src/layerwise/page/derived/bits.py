"""What the bits of layers are worth, from the contrasts of a sweep (`layerwise.measure.contrasts.bits`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.finding import Finding, settle
from layerwise.page.show import SIGNED
from layerwise.page.text.number_format import is_resolved
from layerwise.page.text.wording import listed
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import BITS, CONTRAST, DELTA, EXCESS, STANDS_OUT

QUANTITIES = {
    DELTA: "quantised alone",
    EXCESS: "beyond noise of the same norm",
}
"""What is drawn of each layer, in words."""


def of_bits(data: ReportData) -> Rows:
    return data.rows.where(measure=CONTRAST, claim=BITS)


def by_layer(data: ReportData) -> Iterator[Score]:
    for metric, words in QUANTITIES.items():
        for row in of_bits(data).where(metric=metric, layer=PRESENT):
            yield replace(row, part=words)


def bits_finding(data: ReportData) -> Finding | None:
    types = of_bits(data).where(metric=DELTA).axis("condition")
    sentences = [sentence for kind in types if (sentence := _of_type(data, str(kind))) is not None]
    if not sentences:
        return None
    apart = _named(data, of_bits(data).where(metric=STANDS_OUT))
    answer = " ".join([*sentences, *_beyond_noise(data)])
    return Finding("Which layer needs its bits most?", answer, settle(bool(apart)))


def _named(data: ReportData, rows: Rows) -> list[Score]:
    clear = (row for row in rows if row.value > 0 and is_resolved(row, data.level))
    return sorted(clear, key=lambda row: -row.value)


def _of_type(data: ReportData, kind: str) -> str | None:
    rows = of_bits(data).where(metric=DELTA, condition=kind, layer=PRESENT)
    if not rows:
        return None
    if not any(row.value for row in rows):
        return f"{kind} changes nothing: the weights are at it already."
    mean = of_bits(data).one(metric=DELTA, condition=kind, layer=None)
    apart = _named(data, of_bits(data).where(metric=STANDS_OUT, condition=kind, against=DELTA))
    begins = f"At {kind} a layer alone costs {SIGNED.text(mean)} nats per token on average; "
    if not apart:
        return f"{begins}no layer is shown to need more than the mean of the others."
    needs = [row for row in rows if row.layer == apart[0].layer]
    others = f", then {listed([str(row.layer) for row in apart[1:]])}" if apart[1:] else ""
    return f"{begins}layer {apart[0].layer} needs most, {SIGNED.text(needs[0])}{others}."


def _beyond_noise(data: ReportData) -> Iterator[str]:
    rows = [row for row in of_bits(data).where(metric=EXCESS, layer=None) if row.value]
    if rows:
        spans = listed([f"{SIGNED.text(row)} at {row.condition}" for row in rows])
        yield f"Beyond noise of the same norm the error costs {spans}."
