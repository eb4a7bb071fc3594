"""Which plans ask about a single layer, a pair of neighbours, or a window, read from the plan itself.

Read from the schedule and not from a family's name: a plan that drops exactly layer 5 says what layer 5 is worth,
whoever listed it.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.data import Evidence


def single_skips(evidence: Evidence) -> dict[int, str]:
    """Layer to the plan that drops it alone and changes nothing else."""
    windows = skipped_windows(evidence)
    return {first: text for (first, last), text in windows.items() if first == last}


def skipped_windows(evidence: Evidence) -> dict[tuple[int, int], str]:
    """First and last dropped layer to the plan that drops exactly that window, all others in their order."""
    found: dict[tuple[int, int], str] = {}
    for text, order in _orders(evidence):
        missing = sorted(set(range(evidence.depth)) - set(order))
        kept = tuple(layer for layer in range(evidence.depth) if layer not in missing)
        if missing and order == kept and missing[-1] - missing[0] + 1 == len(missing):
            found.setdefault((missing[0], missing[-1]), text)
    return found


def repeated_windows(evidence: Evidence) -> dict[tuple[int, int], str]:
    """First and last layer of a window to the plan that runs exactly that window twice, all else in order."""
    found: dict[tuple[int, int], str] = {}
    straight = tuple(range(evidence.depth))
    for text, order in _orders(evidence):
        width = len(order) - evidence.depth
        for first in range(evidence.depth - width + 1) if width > 0 else ():
            if order == straight[: first + width] + straight[first:]:
                found.setdefault((first, first + width - 1), text)
    return found


def neighbour_swaps(evidence: Evidence) -> dict[int, str]:
    """First layer of a swapped neighbouring pair to its plan."""
    found: dict[int, str] = {}
    straight = tuple(range(evidence.depth))
    for text, order in _orders(evidence):
        moved = [place for place, layer in enumerate(order) if place != layer]
        if len(order) == evidence.depth and len(moved) == 2 and moved[1] == moved[0] + 1:
            left = moved[0]
            if order == (*straight[:left], left + 1, left, *straight[left + 2 :]):
                found.setdefault(left, text)
    return found


def _orders(evidence: Evidence) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The schedules of the plans that are a plain sequence of whole layers: as many stages as evaluations."""
    for text, plan in evidence.schedules.items():
        record = evidence.records[text]
        if record.stages == record.evaluations and not plan.has_halves():
            yield text, plan.order()
