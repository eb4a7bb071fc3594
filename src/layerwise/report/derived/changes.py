"""Plans that change one window of layers and nothing else: it is left out, runs several times, or two layers swap.

Read from the schedule and not from a family's name: a plan that drops exactly layer 5 says what layer 5 is worth,
whoever listed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from layerwise.plan import Plan
from layerwise.report.data import ReportData
from layerwise.results.selection import Rows

DROPPED, SWAPPED = "dropped", "swapped"
REPEATED = {2: "repeated", 3: "repeated three times"}

Change = tuple[str, int, int]
"""What is done, and the first and the last layer that it is done to."""


def change_of(order: Sequence[int], depth: int) -> Change | None:
    """What an order of layers does to one window, all else running as trained; `None` where it is something else.

    >>> change_of([0, 1, 4, 5], 6), change_of([0, 2, 1, 3], 4), change_of([0, 1, 2, 1, 2, 3], 4), change_of([2, 0], 3)
    (('dropped', 2, 3), ('swapped', 1, 2), ('repeated', 1, 2), None)
    """
    straight, order = list(range(depth)), list(order)
    same = next((at for at, pair in enumerate(zip(order, straight, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(order), depth) if same is None else same
    more = len(order) - depth
    if more < 0 and order[at:] == straight[at - more :]:
        return DROPPED, at, at - more - 1
    if more == 0 and order[at:] == [at + 1, at, *straight[at + 2 :]]:
        return SWAPPED, at, at + 1
    for times, done in REPEATED.items():
        width, rest = divmod(more, times - 1)
        if more > 0 and not rest and order[at:] == (times - 1) * straight[max(0, at - width) : at] + straight[at:]:
            return done, at - width, at - 1
    return None


def changes(data: ReportData) -> dict[Change, str]:
    """Every change of one window that a plan of the run makes, with the first such plan.

    Only a plain sequence of whole layers makes one: as many stages as evaluations.
    """
    plans: dict[Change, str] = {}
    for text, record in data.records.items():
        plan = data.schedules.get(text)
        if plan is not None and record.stages == record.evaluations and not plan.has_sublayers():
            change = change_of(plan.order(), data.depth)
            if change is not None:
                plans.setdefault(change, text)
    return plans


def changed(data: ReportData) -> Rows:
    """What every change of one window costs on every task: of the layers `layer` to `other`, what is done the
    `condition`; by depth."""
    return Rows(
        replace(score, layer=first, other=last, condition=done)
        for (done, first, last), plan in sorted(changes(data).items(), key=lambda change: change[0][1:])
        for task in data.tasks
        if (score := data.effect(plan, task)) is not None
    )


def single(data: ReportData, done: str = DROPPED) -> Rows:
    """What leaving out each layer alone costs, or swapping it with the next, on every task."""
    return Rows(row for row in changed(data).where(condition=done) if done != DROPPED or row.layer == row.other)


def touched(plan: Plan, depth: int) -> str:
    """Which layers a plan of one model leaves out or moves, in a few words; nothing where that takes more.

    >>> touched(Plan.parse("0-3 5-8"), 9), touched(Plan.parse("0-2 4 3 5-8"), 9), touched(Plan.parse("1 3-7"), 9)
    ('without 4', 'layers 3–4', 'without 0, 2, 8')
    """
    order = plan.order()
    if plan.has_sublayers() or plan.sources():
        return ""
    missing = sorted(set(range(depth)) - set(order))
    if len(order) + len(missing) != depth:
        return ""
    if missing:
        return f"without {', '.join(_ranges(missing))}"
    moved = [position for position, layer in enumerate(order) if position != layer]
    return f"layers {moved[0]}–{moved[-1]}" if moved else ""


def _ranges(layers: Sequence[int]) -> Iterator[str]:
    """Ascending layers as ranges, each a text."""
    for _, run in groupby(enumerate(layers), key=lambda pair: pair[1] - pair[0]):
        members = [layer for _, layer in run]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}–{members[-1]}"
