"""A growth schedule as text: a line for every phase, and a chart of depth by time for the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby

from layerwise.errors import PlanError
from layerwise.plan.checks import shown
from layerwise.plan.schedule.phase import Phase
from layerwise.plan.schedule.schedule import GrowthSchedule, apportion, counted
from layerwise.plan.schedule.serialization import write_layers

LEGEND = "█ learns   ▓ learns in some steps   ▒ frozen, passes gradients on   ░ frozen, runs   · absent"

_LEARNS, _AT_TIMES, _PASSES, _RUNS, _ABSENT = "█▓▒░·"


def explain(schedule: GrowthSchedule) -> str:
    """Return a line for every phase: its number, name and share, and its other keys as they are written in YAML.

    >>> first = Phase("top", 0.25, (2, 3), embedding=False, redraw=(3,))
    >>> print(explain(GrowthSchedule("two", 4, (first, Phase("all", 0.75, (0, 1, 2, 3), rate=0.5, shape="cosine")))))
    two, for 4 layers:
    1. top, 25 % of the steps: trains 2 3, embedding false, redraw 3
    2. all, 75 % of the steps: trains 0-3, rate 0.5, shape cosine
    """
    lines = [f"{schedule.name}, for {counted(schedule.depth, 'layer')}:"]
    for number, (phase, written) in enumerate(zip(schedule.phases, schedule.to_json()["phases"], strict=True), 1):
        keys = (
            f"{key} {json.dumps(value).replace(chr(34), '')}"
            for key, value in written.items()
            if key not in ("name", "share")
        )
        lines.append(f"{number}. {phase.name}, {100 * phase.share:.3g} % of the steps: {', '.join(keys)}")
    return "\n".join([*lines, *(f"Warning: {warning}." for warning in schedule.warnings())])


def chart(schedule: GrowthSchedule, width: int = 60) -> str:
    """Depth by time, from the embedding down to the head: a column is a share of the steps, a glyph a state (`LEGEND`).

    Neighbouring layers that do the same all along share a row. The first row numbers the phases, in the order of
    `explain`. Raises `PlanError` for a width of fewer columns than phases; a phase too short for a column has one.

    >>> first = Phase("top", 0.25, (2, 3), embedding=False)
    >>> print(chart(GrowthSchedule("two", 4, (first, Phase("all", 0.75, (0, 1, 2, 3)))), width=12))
               1  2
    embedding  ░░░█████████
          0 1  ░░░█████████
          2 3  ████████████
         head  ████████████
    █ learns   ▓ learns in some steps   ▒ frozen, passes gradients on   ░ frozen, runs   · absent
    """
    if type(width) is not int or width < len(schedule.phases):
        raise PlanError(
            f"a chart of {counted(len(schedule.phases), 'phase')} is as many columns wide or more, not {shown(width)}"
        )
    columns = _columns(schedule, width)
    rows = [
        ("", "".join(_number(number, count) for number, count in enumerate(columns, 1)).rstrip()),
        *(
            (name, "".join(glyph * count for glyph, count in zip(glyphs, columns, strict=True)))
            for name, glyphs in _histories(schedule)
        ),
    ]
    edge = max(len(name) for name, _ in rows)
    return "\n".join([*(f"{name:>{edge}}  {cells}" for name, cells in rows), LEGEND])


def _columns(schedule: GrowthSchedule, width: int) -> list[int]:
    count = len(schedule.phases)
    if width == count:
        return [1] * count
    spare = [max(0.0, phase.share - 1 / width) for phase in schedule.phases]
    return [1 + more for more in apportion(spare, width - count)]


def _number(number: int, columns: int) -> str:
    return f"{number if len(str(number)) < columns else number % 10:<{columns}}"


def _histories(schedule: GrowthSchedule) -> Iterator[tuple[str, tuple[str, ...]]]:
    phases = schedule.phases
    states = [_layer_glyphs(phase, schedule.depth) for phase in phases]
    histories = list(zip(*states, strict=True))
    yield "embedding", tuple(_LEARNS if phase.embedding else _RUNS for phase in phases)
    for history, layers in groupby(range(schedule.depth), key=histories.__getitem__):
        yield write_layers(tuple(layers)), history
    yield "head", tuple(_head_glyph(phase) for phase in phases)


def _layer_glyphs(phase: Phase, depth: int) -> list[str]:
    running, prefix = phase.running(depth), phase.prefix(depth)
    by_chance = phase.sample not in (None, len(phase.trains)) or phase.drop != (0.0, 0.0)

    def glyph(layer: int) -> str:
        if layer in phase.trains:
            return _AT_TIMES if by_chance else _LEARNS
        if layer not in running:
            return _ABSENT
        return _RUNS if layer in prefix else _PASSES

    return list(map(glyph, range(depth)))


def _head_glyph(phase: Phase) -> str:
    if phase.head:
        return _LEARNS
    return _PASSES if phase.embedding or phase.trains else _RUNS
