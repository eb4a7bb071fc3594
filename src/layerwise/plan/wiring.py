"""The wiring of a plan: which earlier outputs each step reads, as a matrix A.

Let `d_0` be the embedding output and `d_j = layer(x_j) - x_j` the update of step j. In any plan of n steps, the input
of step j is

    x_j = sum_{i<j} A[j, i] * d_i          for j = 1..n, and x_{n+1} is the input of the head

In the identity plan, all entries below the diagonal are 1. The M branches of a group read the same state, and later
steps read their updates times 1/M (mean), 1 (sum) or g/M (gain).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

from layerwise.errors import PlanError
from layerwise.plan.plan import Plan

Matrix: TypeAlias = tuple[tuple[float, ...], ...]

MATRIX_LIMIT = 2_000
"""Maximum number of steps, for a matrix of four million numbers."""


def matrix(plan: Plan | str) -> Matrix:
    """Return the wiring of a plan of n steps, a lower triangular matrix of shape `(n + 1, n + 1)`.

    Each row is the input of a step, and the last row is the input of the head. Column 0 has the weight of the
    embedding, and column i that of the update of step i, counted from 1. Raises `PlanError` above `MATRIX_LIMIT` steps.

    >>> for row in matrix(Plan.parse("0 (1|2) 3")):
    ...     print(row)
    (1.0, 0.0, 0.0, 0.0, 0.0)
    (1.0, 1.0, 0.0, 0.0, 0.0)
    (1.0, 1.0, 0.0, 0.0, 0.0)
    (1.0, 1.0, 0.5, 0.5, 0.0)
    (1.0, 1.0, 0.5, 0.5, 1.0)
    """
    plan = Plan.parse(plan)
    steps = plan.steps()
    if len(steps) > MATRIX_LIMIT:
        raise PlanError(
            f"a plan must have at most {MATRIX_LIMIT:,} steps for its wiring to be computed, got {len(steps):,}"
        )
    state = [1.0] + [0.0] * len(steps)
    rows: list[tuple[float, ...]] = []
    frames: list[tuple[list[float], list[list[float]]]] = []
    for number, step in enumerate(steps, start=1):
        frames += [(state, []) for _ in range(step.opens)]
        rows.append(tuple(state))
        state = [*state[:number], state[number] + 1.0, *state[number + 1 :]]
        for close in step.closes:
            base, outputs = frames[-1]
            outputs.append(state)
            state = base
            if close is not None:
                state = _merge_rows(base, outputs, close.weight(len(outputs)))
                frames.pop()
    return (*rows, tuple(state))


def _merge_rows(base: list[float], outputs: list[list[float]], weight: float) -> list[float]:
    return [start + weight * sum(end - start for end in ends) for start, *ends in zip(base, *outputs, strict=True)]


# -- as text --------------------------------------------------------------------------------------------------------

_SHADES = ((0.99, "█"), (0.5, "▓"), (0.2, "▒"), (0.0, "░"))
_UNREAD = "·"
_NEGATIVE = "−"

LEGEND = "rows: layers as they run   columns: embedding, then each step   █ 1 or more  ▓ ≥ ½  ▒ ≥ ⅕  ░ less  · not read"


def picture(plan: Plan | str, size: int = 48) -> str:
    """Draw the wiring of a plan as text with at most `size` rows and columns, averaging entries if necessary.

    Rows are the steps and the output; columns are the embedding and the steps. The identity plan is a full triangle.

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
        raise PlanError(f"size must be an integer of at least 1, got {size!r}")
    wiring = matrix(plan)
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
    read = [wiring[row][column] for row in rows for column in columns if column <= row]
    mean = sum(read) / len(read)
    if mean == 0:
        return _UNREAD
    return _NEGATIVE if mean < 0 else next(shade for least, shade in _SHADES if mean >= least)
