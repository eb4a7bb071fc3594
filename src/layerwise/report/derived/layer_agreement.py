"""Whether changes of single layers rank them alike, from the contrasts of a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layerwise.report.data import ReportData
from layerwise.report.finding import Finding, settled
from layerwise.report.show import SIGNED
from layerwise.report.text.number_format import probability, tidy
from layerwise.report.text.wording import counted
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import CONTRAST, CORRECTED, LAYER_AGREEMENT, RELIABILITY, SPEARMAN

REMOVED = "removed"
ALIKE = 0.5
"""From which correlation on, noise taken off, two rankings are called alike."""
MOST_PAIRS = 3


def of_agreement(data: ReportData) -> Rows:
    """Every contrast about it."""
    return data.rows.where(measure=CONTRAST, claim=LAYER_AGREEMENT)


def matrix(data: ReportData) -> Iterator[Score]:
    """The correlation of each two changes without the attenuation by noise, both ways."""
    for row in of_agreement(data).where(metric=CORRECTED):
        yield row
        yield replace(row, arm=row.against, against=row.arm)


def listed_pairs(data: ReportData) -> Iterator[Score]:
    """The rows of the table: a pair as its `condition`, and of a change alone its reliability."""
    for row in of_agreement(data):
        pair = row.arm if row.metric == RELIABILITY else f"{row.arm} and {row.against}"
        yield replace(row, condition=pair)


def agreement_finding(data: ReportData) -> Finding | None:
    """Is a layer that can go also one that needs few bits?"""
    pairs = sorted(of_agreement(data).where(metric=CORRECTED), key=lambda row: -row.value)
    if not pairs:
        return None
    alike = [row for row in pairs if _is_alike(row, data.level)]
    strongest = "; ".join(f"{row.arm} and {row.against} {SIGNED.text(row)}" for row in alike[:MOST_PAIRS])
    verb = "is" if len(alike) == 1 else "are"
    begins = f"{len(alike)} of {counted(len(pairs), 'pair')} of changes {verb} shown to rank the layers alike"
    answer = f"{begins}{f': {strongest}' if strongest else ''}{', ...' if len(alike) > MOST_PAIRS else ''}."
    others = {
        row: str(row.against if row.arm == REMOVED else row.arm) for row in pairs if REMOVED in (row.arm, row.against)
    }
    about_bits = {row: other for row, other in others.items() if other.startswith(("at ", "kept from "))}
    if about_bits:
        each = "; ".join(
            f"{other} {SIGNED.text(row)}, p {probability(row.p_adjusted)}{_measured(data, row)}"
            for row, other in about_bits.items()
        )
        few = any(_is_alike(row, data.level) for row in about_bits)
        answer += f" That layers which can go need few bits is {'' if few else 'not '}shown. Removed and {each}."
    return Finding("Do changes of a layer rank the layers alike?", answer, settled(bool(alike)))


def _is_alike(row: Score, level: float) -> bool:
    return row.value > ALIKE and row.p_adjusted is not None and row.p_adjusted <= level


def _measured(data: ReportData, row: Score) -> str:
    """The correlation as it was measured, noise and all."""
    plain = of_agreement(data).one(metric=SPEARMAN, arm=row.arm, against=row.against)
    return "" if plain is None else f" (measured {tidy(plain.value)})"
