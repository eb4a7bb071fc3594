"""A growth schedule drawn, depth by time: for each part of the model and each phase, what it costs of its full cost.

The embedding stands above, the layers downwards, the head below; time runs to the right in steps, on one scale for all
schedules that are shown together. The fuller a cell, the more of forward pass, input gradient and weight gradient is
done there: full where a layer learns, two thirds where it is frozen above something that learns, a third where nothing
below it learns, an empty frame where it is absent or read from a cache. So two schedules of equal FLOPs hold about the
same amount of colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from layerwise.report.growth.lookup import GrowthScores, PhaseSteps
from layerwise.report.growth.tables import PARTS, learning, state_of
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.number_format import fixed

WIDTH, HEIGHT = 330, 168  # of the cells
EDGE, HEAD, FOOT = 30, 16, 20
THICKEST, THINNEST = 16.0, 2.0  # a row of cells
GAP = 1.0  # between rows, and between phases
LEGIBLE = 11  # units between two labels of rows
NARROWEST = 9  # a phase that is narrower has no number above it


def schedule_diagram(run: GrowthScores, arm: str, *, steps: int) -> Safe:
    """The schedule of an arm as an SVG whose whole width is `steps`."""
    phases = run.phases(arm)
    shares = {phase: run.shares(arm, phase) for phase in phases}
    parts = parts_of(shares.values())
    row = min(THICKEST, max(THINNEST, HEIGHT / max(1, len(parts))))
    scale = WIDTH / max(1, steps)
    cells = [
        _cell(phase, part, of[part], (EDGE + phase.first * scale, HEAD + at * row, phase.steps * scale, row))
        for phase, of in shares.items()
        for at, part in enumerate(parts)
        if part in of
    ]
    title = f"Schedule of {arm}, depth by time"
    return element(
        "svg",
        element("title", title),
        *_names(parts, row),
        *_numbers(phases, scale),
        *cells,
        *_steps(phases, scale, HEAD + len(parts) * row),
        viewBox=f"0 0 {EDGE + WIDTH + 4:g} {HEAD + len(parts) * row + FOOT:g}",
        class_="timetable",
        role="img",
        aria_label=f"{title}: {'; '.join(_spoken(phase, of) for phase, of in shares.items())}",
    )


def parts_of(shares: Iterable[Mapping[str, float]]) -> list[str]:
    """Every part that any phase names, from the embedding to the head.

    >>> parts_of([{"1": 1.0, "head": 1.0}, {"0": 1.0, "embedding": 1.0}])
    ['embedding', '0', '1', 'head']
    """
    named = {part for of in shares for part in of}
    layers = sorted((part for part in named if part.isdecimal()), key=int)
    embedding, head = ([part] if part in named else [] for part in PARTS)
    return [*embedding, *layers, *head]


def _cell(phase: PhaseSteps, part: str, share: float, extent: tuple[float, float, float, float]) -> Safe:
    x, y, width, height = extent
    gap = min(GAP, height / 4)
    box = {"x": x, "y": y, "width": max(0.5, width - GAP), "height": height - gap}
    name = f"layer {part}" if part.isdecimal() else f"the {part}"
    does = state_of(share) or "drawn at random"
    words = f"{phase.name}, steps {phase.first:,} to {phase.end - 1:,}: {name} {does}, {fixed(share, 2)} of its cost"
    return element(
        "rect",
        element("title", words),
        **{key: f"{value:.2f}" for key, value in box.items()},
        fill_opacity=f"{share:.3g}",
        class_="nothing" if share <= 0.0 else None,
    )


def _names(parts: list[str], row: float) -> list[Safe]:
    """The first letters of embedding and head, and as many numbers of layers as can be read."""
    step = next(step for step in count(1) if step * row >= LEGIBLE or step >= len(parts))
    return [
        element("text", part if part.isdecimal() else part[0], x=f"{EDGE - 6}", y=f"{HEAD + (at + 0.5) * row:.2f}")
        for at, part in enumerate(parts)
        if not part.isdecimal() or int(part) % step == 0
    ]


def _numbers(phases: Sequence[PhaseSteps], scale: float) -> list[Safe]:
    """The number of each phase above it, where there is room."""
    return [
        element("text", str(number), x=f"{EDGE + (phase.first + phase.end) / 2 * scale:.2f}", y="7", class_="middle")
        for number, phase in enumerate(phases, start=1)
        if phase.steps * scale >= NARROWEST
    ]


def _steps(phases: Sequence[PhaseSteps], scale: float, y: float) -> list[Safe]:
    """The first step and the last one, below."""
    if not phases:
        return []
    end = phases[-1].end
    return [
        element("text", "0", x=f"{EDGE}", y=f"{y + 10:.2f}", class_="middle"),
        element("text", f"{end:,} steps", x=f"{EDGE + end * scale:.2f}", y=f"{y + 10:.2f}"),
    ]


def _spoken(phase: PhaseSteps, shares: Mapping[str, float]) -> str:
    return f"{phase.name}, steps {phase.first:,} to {phase.end - 1:,}: {learning(shares)} learn"
