"""The wiring of a plan as text, for a terminal: what each step reads of everything that was added before it.

Rows are the steps from top to bottom, named by their layer or half, and the output; columns are the embedding and then
what each step added. An unedited model is a full triangle; a group shows as a notch, where its members do not read each
other, with paler columns below it, where later steps read only a share of each.
"""

from __future__ import annotations

from itertools import pairwise

from layerwise.errors import PlanError
from layerwise.plan.plan import Plan
from layerwise.plan.wiring import Matrix

_SHADES = ((0.99, "█"), (0.5, "▓"), (0.2, "▒"), (0.0, "░"))
_UNREAD = "·"
_NEGATIVE = "−"

LEGEND = "rows: layers as they run   columns: embedding, then each step   █ 1 or more  ▓ ≥ ½  ▒ ≥ ⅕  ░ less  · not read"


def picture(plan: Plan | str, size: int = 48) -> str:
    """The wiring of a plan, at most `size` cells wide and high; a longer plan is drawn by the means of its parts.

    >>> print(picture(Plan.parse("0 1 (2|3|4) 5")))
      0  ██
      1  ████
      2  ██████
      3  ██████··
      4  ██████····
      5  ██████▒▒▒▒▒▒
    out  ██████▒▒▒▒▒▒██
    """
    plan = Plan.parse(plan)
    if type(size) is not int or size < 1:
        raise PlanError(f"a picture is a whole number of cells wide, from 1 up, not {size!r}")
    wiring = plan.matrix()
    names = [*(step.name for step in plan.steps()), "out"]
    count = len(wiring)
    edges = [cell * count // min(size, count) for cell in range(min(size, count) + 1)]
    parts = [range(start, stop) for start, stop in pairwise(edges)]
    width = max(3, *map(len, names))
    return "\n".join(
        f"{names[rows[0]]:>{width}}  " + "".join(2 * _cell(wiring, rows, columns) for columns in parts[: number + 1])
        for number, rows in enumerate(parts)
    )


def _cell(wiring: Matrix, rows: range, columns: range) -> str:
    """The shade of the mean over a part of the wiring, of what lies on or below the diagonal."""
    read = [wiring[row][column] for row in rows for column in columns if column <= row]
    mean = sum(read) / len(read)
    if mean == 0:
        return _UNREAD
    return _NEGATIVE if mean < 0 else next(shade for least, shade in _SHADES if mean >= least)
