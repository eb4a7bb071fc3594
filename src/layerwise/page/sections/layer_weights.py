"""Sections on learned layer weights and minimal pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from statistics import fmean, stdev

from layerwise.page.data import ReportData
from layerwise.page.figures.palette import sort_variants
from layerwise.page.finding import Finding, to_verdict
from layerwise.page.formatting import ACCURACY, Format, format_fixed, format_number, join_words
from layerwise.page.kind import CustomTable, Part, Section
from layerwise.page.table import Table, Tone
from layerwise.page.trained import average_by_variant, format_suite, list_suites
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT

CHANCE_OF_PAIRS = 50.0
EMBEDDING = 0
"""Source index of the embedding."""

RIGHT = ACCURACY.replace(span=None, reference=CHANCE_OF_PAIRS)


def list_scores(rows: Iterable[Score], show: Format) -> str:
    return ", ".join(f"{row.variant} {show.text(row)}" for row in rows)


def suite_findings(data: ReportData) -> Iterator[Finding]:
    for suite in list_suites(data):
        scores = average_by_variant(data.rows.where(measure=suite, metric="accuracy", task=vocab.ALL))
        if not scores:
            continue
        chance = CHANCE_OF_PAIRS / 100
        above = [str(row.variant) for row in scores if row.low is not None and row.low > chance]
        below = [str(row.variant) for row in scores if row.high is not None and row.high < chance]
        names = "all variants" if len(above) == len(scores) and len(scores) > 1 else join_words(above) or "no variant"
        under = f"; below chance: {join_words(below)}" if below else ""
        answer = f"{list_scores(scores, ACCURACY)}. Above chance ({CHANCE_OF_PAIRS:g} %): {names}{under}."
        is_decided = None if all(row.low is None for row in scores) else True
        yield Finding(f"How accurate is each variant on {format_suite(suite)}?", answer, to_verdict(is_decided))


def weight_parts(data: ReportData) -> Iterator[Part]:
    learned = sort_variants(data.rows.where(measure=vocab.ALPHA).axis("variant"))
    for variant in learned:
        note = "weights" if variant == learned[-1] else ""
        table = partial(weight_table, variant=variant)
        yield CustomTable(title=f"Layer weights of {variant}", table=table, terminal=False, note=note)


def weight_table(data: ReportData, variant: str) -> Table:
    """Return a table of learned weights: how strongly each layer (row) reads each earlier output (column).

    Weights are means over seeds, with their standard deviation if there are several seeds. Cells are shaded by weight.
    """
    cells: dict[tuple[int | None, int], list[Score]] = {}
    for row in data.rows.where(measure=vocab.ALPHA, variant=variant, source=PRESENT):
        cells.setdefault((row.layer, row.source or 0), []).append(row)
    means = {cell: fmean(row.value for row in group) for cell, group in cells.items()}
    most = max((abs(value) for (reader, _), value in means.items() if reader != 0), default=1.0) or 1.0
    lines = sorted({reader for reader, _ in cells}, key=lambda reader: (reader is None, reader))
    sources = sorted({source for _, source in cells})
    body, tones = [], {}
    for line, reader in enumerate(lines):
        texts = ["the output" if reader is None else f"layer {reader}"]
        for at, source in enumerate(sources, start=1):
            group = cells.get((reader, source))
            if group is None:
                texts.append("")
                continue
            value, values = means[reader, source], [row.value for row in group]
            spread = f" [±{format_fixed(stdev(values), 2)}]" if len(values) > 1 else ""
            texts.append(f"{format_fixed(value, 2)}{spread}")
            by_seed = "; ".join(f"{variant}/{row.seed}: {format_number(row.value)}" for row in group)
            title = f"{texts[0]} reads {source_name(source)}: {format_number(value)} ({by_seed})"
            tones[line, at] = Tone("negative" if value < 0 else "weight", min(1.0, abs(value) / most), title)
        body.append(tuple(texts))
    heads = ("e" if source == EMBEDDING else str(source - 1) for source in sources)
    return Table(("reader", *heads), tuple(body), tones=tones)


def source_name(source: int) -> str:
    return "the embedding" if source == EMBEDDING else f"layer {source - 1}"


WEIGHTS = Section(anchor=vocab.ALPHA, prose="pretraining", parts=weight_parts)
