"""A growth schedule in words, and as a chart of depth by time for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from layerwise.errors import PlanError
from layerwise.plan.checks import shown
from layerwise.plan.explain import named_layers
from layerwise.plan.schedule.phase import Phase
from layerwise.plan.schedule.schedule import GrowthSchedule, apportion, counted
from layerwise.plan.schedule.serialization import copied_runs, scaled_groups, write_layers

LEGEND = "█ learns   ▓ learns in some steps   ▒ frozen, passes gradients on   ░ frozen, runs   · absent"

_LEARNS, _AT_TIMES, _PASSES, _RUNS, _ABSENT = "█▓▒░·"


def explain(schedule: GrowthSchedule) -> str:
    """A line for every phase, or two: what is done when it begins, what learns and how, and what only runs.

    >>> first = Phase("top", 0.25, (2, 3), embedding=False, redraw=(3,))
    >>> print(explain(GrowthSchedule("two", 4, (first, Phase("all", 0.75, (0, 1, 2, 3), rate=0.5, shape="cosine")))))
    two, for 4 layers:
    top, 25 % of the steps: layers 2, 3 and the head learn; layers 0, 1 and the embedding are frozen.
        First layer 3 is given new random weights.
    all, 75 % of the steps: everything learns, at 0.5 x the learning rate, in a cosine down to 0.
    """
    lines = [f"{schedule.name}, for {counted(schedule.depth, 'layer')}:"]
    for number, phase in enumerate(schedule.phases):
        clauses = "; ".join(_clauses(phase, schedule.depth))
        lines.append(f"{phase.name}, {100 * phase.share:.3g} % of the steps: {clauses}.")
        first = list(_first(phase, forgets=number > 0))
        if first:
            lines.append(f"    First {'; '.join(first)}.")
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


# -- words --------------------------------------------------------------------------------------------------------


def _clauses(phase: Phase, depth: int) -> Iterator[str]:
    yield ", ".join([_who_learns(phase, depth), *_how(phase)])
    running = phase.running(depth)
    frozen = _listed(
        tuple(layer for layer in running if layer not in phase.trains),
        embedding=not phase.embedding,
        head=not phase.head,
    )
    if frozen:
        yield f"{_joined(frozen)} {'are' if _several(frozen) else 'is'} frozen"
    absent = tuple(layer for layer in range(depth) if layer not in running)
    if absent:
        yield f"{named_layers(absent)} {'do' if len(absent) > 1 else 'does'} not run"
    if phase.drop != (0.0, 0.0):
        first, last = phase.drop
        chance = f"{first:g}" if first == last else f"{first:g} at first and {last:g} at the end"
        yield f"layers are left out by chance, the last with a probability of {chance}, those before it with less"


def _who_learns(phase: Phase, depth: int) -> str:
    always = _listed((), phase.embedding, phase.head)
    if phase.sample not in (None, len(phase.trains)):
        when = "at every step" if phase.every == 1 else f"every {phase.every} steps"
        learn = "learns" if phase.sample == 1 else "learn"
        drawn = f"{phase.sample} of {named_layers(phase.trains)}"
        if not always:
            return f"{drawn} {learn} at a time, drawn anew {when}"
        throughout = f"{_joined(always)} {'learn' if _several(always) else 'learns'} throughout"
        return f"{throughout}, and {drawn} at a time, drawn anew {when}"
    if len(phase.trains) == depth and phase.embedding and phase.head:
        return "everything learns"
    learns = _listed(phase.trains, phase.embedding, phase.head)
    return f"{_joined(learns)} {'learn' if _several(learns) else 'learns'}"


def _how(phase: Phase) -> Iterator[str]:
    if phase.rate != 1:
        yield f"at {phase.rate:g} x the learning rate"
    match phase.shape:
        case "constant":
            yield "at a constant rate"
        case "linear" | "cosine":
            yield f"in a {phase.shape.replace('linear', 'line')} down to 0"
    if phase.warmup:
        yield f"with a warm-up over its first {100 * phase.warmup:g} %"


def _first(phase: Phase, forgets: bool) -> Iterator[str]:
    for layers, sources in copied_runs(phase.copies):
        yield f"{named_layers(layers)} {'take' if len(layers) > 1 else 'takes'} the weights of {named_layers(sources)}"
    if phase.redraw:
        yield f"{named_layers(phase.redraw)} {'are' if len(phase.redraw) > 1 else 'is'} given new random weights"
    for factor, layers in scaled_groups(phase.scale):
        yield f"the matrices of {named_layers(layers)} are multiplied by {factor:g}"
    if phase.optimizer == "drop" and forgets:
        yield "the optimiser forgets its moments"


def _listed(layers: tuple[int, ...], embedding: bool, head: bool) -> list[str]:
    parts = [named_layers(layers)] if layers else []
    return parts + ["the embedding"] * embedding + ["the head"] * head


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _several(parts: list[str]) -> bool:
    return len(parts) > 1 or parts[0].startswith("layers")
