"""The texts of a search: to search on, to select on, to report on, no two of them with a document in common.

A number that chose a plan flatters it. So the search sees one part of the text, the plan is chosen among its finalists
on a second, and what is reported is measured once, on a third. The first part is cut into rungs that grow fourfold.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from layerwise.errors import DataError
from layerwise.measure.language.evaluation_data import EvalData, pieces, portion
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.measure.stats.strata import FEWEST_DOCUMENTS, shuffled
from layerwise.search.rungs import GROWTH

SHARES: Mapping[str, float] = {"search": 0.4, "select": 0.2, "report": 0.4}
"""The parts, and their shares of the documents."""

RUNGS = 3
"""Rungs of the search text, at most: T/16, T/4 and T tokens."""

FEWEST = 3 * FEWEST_UNITS
"""Documents below which windows are divided in their place."""


def divided_text(data: EvalData, seed: int, shares: Mapping[str, float] = SHARES) -> dict[str, EvalData]:
    """The parts by their names, disjoint by document, or by window where the text has fewer than 24 documents.

    Raises `DataError` for a text of which a part would have fewer than 8.
    """
    order = shuffled(pieces(data, FEWEST), seed)
    least = min(shares.values()) * len(order)
    if least < FEWEST_UNITS:
        raise DataError(
            f"{data.name} has {data.documents} documents in {len(data.windows)} windows, and they are divided into "
            f"{len(shares)} parts of at least {FEWEST_UNITS}: give {round(FEWEST_UNITS / min(shares.values()))} "
            "documents or more, or shorter windows with --max-length"
        )
    parts, start, share = {}, 0, 0.0
    for name, own in shares.items():
        share += own
        end = round(share * len(order))
        parts[name] = portion(data, order[start:end])
        start = end
    return parts


def by_document(data: EvalData) -> bool:
    """Whether `divided_text` divides this text by document."""
    return data.documents >= FEWEST


def grown(data: EvalData, seed: int, rungs: int = RUNGS) -> tuple[EvalData, ...]:
    """What each rung adds to the one before it: together they are the whole text, and the first has 8 units or more."""
    order = shuffled(pieces(data, FEWEST_DOCUMENTS), seed)
    ends = [len(order) // GROWTH**rung for rung in range(rungs)]
    ends = [0, *sorted(end for end in ends if end >= FEWEST_UNITS or end == len(order))]
    return tuple(portion(data, order[start:end]) for start, end in pairwise(ends))
