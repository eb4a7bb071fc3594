"""Which plans ask about a single layer, a pair of neighbours, or a window, read from the plan itself.

Read from the schedule and not from a family's name: a plan that drops exactly layer 5 says what layer 5 is worth,
whoever listed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from layerwise.plan import Plan
from layerwise.report.evidence import Evidence


def single_skips(evidence: Evidence) -> dict[int, str]:
    """Layer to the plan that drops it alone and changes nothing else."""
    windows = skipped_windows(evidence)
    return {first: text for (first, last), text in windows.items() if first == last}


def skipped_windows(evidence: Evidence) -> dict[tuple[int, int], str]:
    """First and last dropped layer to the plan that drops exactly that window, all others in their order."""
    plans: dict[tuple[int, int], str] = {}
    for text, order in _orders(evidence):
        missing = sorted(set(range(evidence.depth)) - set(order))
        kept = tuple(layer for layer in range(evidence.depth) if layer not in missing)
        if missing and order == kept and missing[-1] - missing[0] + 1 == len(missing):
            plans.setdefault((missing[0], missing[-1]), text)
    return plans


def repeated_windows(evidence: Evidence, times: int = 2) -> dict[tuple[int, int], str]:
    """First and last layer of a window to the plan that runs exactly that window `times` times, all else in order."""
    plans: dict[tuple[int, int], str] = {}
    straight = tuple(range(evidence.depth))
    for text, order in _orders(evidence):
        width, rest = divmod(len(order) - evidence.depth, times - 1)
        for first in range(evidence.depth - width + 1) if width > 0 and not rest else ():
            last = first + width
            if order == straight[:last] + (times - 1) * straight[first:last] + straight[last:]:
                plans.setdefault((first, last - 1), text)
    return plans


def neighbour_swaps(evidence: Evidence) -> dict[int, str]:
    """First layer of a swapped neighbouring pair to its plan."""
    plans: dict[int, str] = {}
    straight = tuple(range(evidence.depth))
    for text, order in _orders(evidence):
        moved = [position for position, layer in enumerate(order) if position != layer]
        if len(order) == evidence.depth and len(moved) == 2 and moved[1] == moved[0] + 1:
            left = moved[0]
            if order == (*straight[:left], left + 1, left, *straight[left + 2 :]):
                plans.setdefault(left, text)
    return plans


def touched(plan: Plan, depth: int) -> str:
    """Which layers a plan of one model leaves out or moves, in a few words; nothing where that takes more.

    >>> touched(Plan.parse("0-3 5-8"), 9), touched(Plan.parse("0-2 4 3 5-8"), 9), touched(Plan.parse("1 3-7"), 9)
    ('without 4', 'layers 3–4', 'without 0, 2, 8')
    """
    order = plan.order()
    if plan.has_sublayers() or plan.sources():
        return ""
    missing = sorted(set(range(depth)) - set(order))
    if len(order) + len(missing) == depth:
        if missing:
            return f"without {', '.join(_ranges(missing))}"
        moved = [position for position, layer in enumerate(order) if position != layer]
        return f"layers {moved[0]}–{moved[-1]}" if moved else ""
    return ""


def _ranges(layers: Sequence[int]) -> Iterator[str]:
    """Ascending layers as ranges, each a text."""
    for _, run in groupby(enumerate(layers), key=lambda pair: pair[1] - pair[0]):
        members = [layer for _, layer in run]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}–{members[-1]}"


def _orders(evidence: Evidence) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The schedules of the plans that are a plain sequence of whole layers: as many stages as evaluations."""
    for text, plan in evidence.schedules.items():
        record = evidence.records[text]
        if record.stages == record.evaluations and not plan.has_sublayers():
            yield text, plan.order()
