"""Convert growth schedules to JSON or YAML values, to words, and to a chart.

    {name: two, depth: 12, phases: [
      {name: top, share: 0.25, trains: 8-11, embedding: false, scale: {3 5: 0.9}},
      {name: rest, share: 0.75, trains: all, copies: {8-11: 0-3}}]}

`trains` is `all`, `none` or layers as in a plan. `scale` maps layers to factors, and `copies` maps layers to the layers
whose weights they get. Only name, share and trains are required.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

from layerwise.errors import PlanError, near_matches
from layerwise.plan.checks import check_depth, describe_value
from layerwise.plan.plan import Plan, Visit
from layerwise.plan.schedule.schedule import GrowthSchedule, Phase, apportion, counted

NONE = "none"
ALL = "all"

_FIELDS = tuple(field.name for field in fields(Phase))
_DEFAULTS = {field.name: field.default for field in fields(Phase)}
_REQUIRED = ("name", "share", "trains")
_LAYERS = ("trains", "present", "redraw")


def to_plain(schedule: GrowthSchedule) -> dict[str, Any]:
    """Convert a schedule to a dictionary for JSON or YAML; `from_plain` is the inverse."""
    return {
        "name": schedule.name,
        "depth": schedule.depth,
        "phases": [_phase_content(phase) for phase in schedule.phases],
    }


def from_plain(content: object) -> GrowthSchedule:
    """Create a schedule from the result of `to_plain`. Raise `PlanError` for a missing, unknown or invalid key."""
    schedule = _mapping(content, "a schedule", ("name", "depth", "phases"), ("name", "depth", "phases"))
    depth = schedule["depth"]
    check_depth(depth)
    listed = schedule["phases"]
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise PlanError(f"phases must be a non-empty list of phases, got {describe_value(listed)}")
    phases = [_mapping(phase, _phase_label(phase, number), _FIELDS) for number, phase in enumerate(listed, 1)]
    return GrowthSchedule(
        schedule["name"],
        depth,
        tuple(_read(phase, _phase_label(phase, number), depth) for number, phase in enumerate(phases, 1)),
    )


def _phase_label(phase: object, number: int) -> str:
    name = phase.get("name") if isinstance(phase, Mapping) else None
    return f"phase {name}" if isinstance(name, str) else f"phase {number}"


def _mapping(content: object, what: str, keys: Sequence[str], required: Sequence[str] = ()) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise PlanError(f"{what} must be a mapping of keys to values, got {describe_value(content)}")
    for key in content:
        if key not in keys:
            fix = "write share, its part of the budget" if key in ("from", "to") else near_matches(str(key), keys)
            raise PlanError(f"{what} has the unknown key {describe_value(key)}; {fix}")
    _require(content, what, required)
    return dict(content)


def _require(content: Mapping[str, Any], what: str, required: Sequence[str]) -> None:
    missing = [key for key in required if key not in content]
    if missing:
        raise PlanError(f"{what} must have the keys {', '.join(required)}, but lacks {' and '.join(missing)}")


# -- one phase ----------------------------------------------------------------------------------------------------


def _read(phase: Mapping[str, Any], called: str, depth: int) -> Phase:
    _require(phase, called, _REQUIRED)
    content = dict(phase)
    for key in _LAYERS:
        if key in content and not (key == "present" and content[key] is None):
            content[key] = read_layers(content[key], f"{called}: {key}", depth)
    if "scale" in content:
        content["scale"] = _read_scale(content["scale"], f"{called}: scale", depth)
    if "copies" in content:
        content["copies"] = _read_copies(content["copies"], f"{called}: copies", depth)
    if isinstance(content.get("drop"), list):
        content["drop"] = tuple(content["drop"])
    return Phase(**content)


def _read_scale(content: object, what: str, depth: int) -> tuple[tuple[int, float], ...]:
    if not isinstance(content, Mapping):
        raise PlanError(f"{what} must map layers to a factor, as in {{3 5: 0.9}}, got {describe_value(content)}")
    pairs = [(layer, factor) for text, factor in content.items() for layer in read_layers(text, what, depth)]
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


def _read_copies(content: object, what: str, depth: int) -> tuple[tuple[int, int], ...]:
    if not isinstance(content, Mapping):
        raise PlanError(f"{what} must map layers to their sources, as in {{4-7: 0-3}}, got {describe_value(content)}")
    pairs: list[tuple[int, int]] = []
    for text, source in content.items():
        layers, sources = read_layers(text, what, depth), read_layers(source, what, depth)
        if len(layers) != len(sources):
            raise PlanError(
                f"{what} must have as many layers as sources, got {len(layers)} for {text} and {len(sources)} for "
                f"{source}"
            )
        pairs += zip(layers, sources, strict=True)
    return tuple(sorted(pairs))


def _phase_content(phase: Phase) -> dict[str, Any]:
    content = {key: getattr(phase, key) for key in _FIELDS if key in _REQUIRED or getattr(phase, key) != _DEFAULTS[key]}
    for key in _LAYERS:
        if key in content:
            content[key] = write_layers(content[key])
    if phase.scale:
        content["scale"] = {str(layer): factor for layer, factor in phase.scale}
    if phase.copies:
        content["copies"] = {str(layer): str(source) for layer, source in phase.copies}
    if "drop" in content:
        content["drop"] = list(phase.drop)
    return content


# -- layers --------------------------------------------------------------------------------------------------------


def read_layers(text: object, what: str, depth: int) -> tuple[int, ...]:
    """Parse layers in ascending order. Error messages start with `what`.

    >>> read_layers("0-2 8", "trains", depth=12)
    (0, 1, 2, 8)
    >>> read_layers("3 2", "trains", depth=12)
    Traceback (most recent call last):
    layerwise.errors.PlanError: trains must be ascending layers without duplicates, as in 0-3 8, got 3 2
    """
    if type(text) is int and text >= 0:
        return (text,)
    if type(text) is not str:
        raise PlanError(f"{what} must be all, none, or layers such as 0-3 8, got {describe_value(text)}")
    if text.strip() in (NONE, ALL):
        return tuple(range(depth)) if text.strip() == ALL else ()
    try:
        plan = Plan.parse(text)
    except PlanError as error:
        raise PlanError(f"{what} is invalid: {error.reason}", text=error.text, position=error.position) from None
    layers = tuple(stage.layer for stage in plan.stages if isinstance(stage, Visit) and stage == Visit(stage.layer))
    if len(layers) < len(plan.stages):
        raise PlanError(f"{what} must be entire layers without repeats or groups, as in 0-3 8, got {text}")
    if list(layers) != sorted(set(layers)):
        raise PlanError(f"{what} must be ascending layers without duplicates, as in 0-3 8, got {text}")
    return layers


def write_layers(layers: tuple[int, ...]) -> str:
    """Format layers so that `read_layers` can parse them.

    >>> write_layers((0, 1, 2, 8)), write_layers(())
    ('0-2 8', 'none')
    """
    return str(Plan.of(layers)) if layers else NONE


LEGEND = "█ learns   ▓ learns in some steps   ▒ frozen, passes gradients on   ░ frozen, runs   · absent"

_LEARNS, _AT_TIMES, _PASSES, _RUNS, _ABSENT = "█▓▒░·"


def explain(schedule: GrowthSchedule) -> str:
    """Describe a schedule in words, one line per phase.

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
    """Draw which layers are trained when, as text of `width` columns.

    Time goes from left to right, and rows from the embedding to the head. `LEGEND` explains the characters. Adjacent
    layers with equal histories share a row. Raises `PlanError` if there are fewer columns than phases.

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
            f"width must be at least {len(schedule.phases)}, one column per phase, got {describe_value(width)}"
        )
    columns = _columns(schedule, width)
    rows = [
        ("", "".join(_number(number, count) for number, count in enumerate(columns, 1)).rstrip()),
        *(
            (name, "".join(glyph * count for glyph, count in zip(glyphs, columns, strict=True)))
            for name, glyphs in _chart_rows(schedule)
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


def _chart_rows(schedule: GrowthSchedule) -> Iterator[tuple[str, tuple[str, ...]]]:
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
