"""Dots in rows, one for each arm: what was measured with its interval, its seeds as faint dots, and the chance line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from layerwise.report.figures.figure import Figure, Trace, scatter, upright_band, upright_line
from layerwise.report.figures.frame import REFERENCE, framed, interval, limits, row_axis, series_style, whiskers
from layerwise.report.figures.palette import faded, light
from layerwise.results.rows import Score

LANE = 13  # height of one arm within a row
AIR = 16  # between rows
EDGES = 52  # the axis and its title
SEED_SIZE, SIZE = 5, 9


@dataclass(frozen=True, slots=True)
class DotArm:
    """One arm: a score for every row that it has, and those of its seeds."""

    name: str
    slot: int
    rows: Mapping[str, Score]
    seeds: Mapping[str, Sequence[Score]] = field(default_factory=dict)


def dots(
    arms: Sequence[DotArm],
    *,
    across: str,
    reference: float | None = None,
    chance: Mapping[str, float] | None = None,
    from_zero: bool = False,
    signed: bool = False,
    span: tuple[float, float] | None = None,
    rows: Sequence[str] | None = None,
    allowed: tuple[float, float] | None = None,
) -> Figure:
    """A row for each name that any arm has, a lane in it for each arm.

    `reference` is a dotted line through all rows, `chance` a short dotted line in each; `from_zero` keeps zero on the
    axis, `signed` shows the sign in the hover text, `allowed` is a grey band through all rows. `span` fixes the axis
    and `rows` which there are, for figures that stand side by side.
    """
    names = list(rows or dict.fromkeys(name for arm in arms for name in arm.rows))
    row_of = {name: at for at, name in enumerate(names)}
    crowded = max((sum(name in arm.rows for arm in arms) for name in names), default=1)
    height = AIR + LANE * crowded
    heights = [_heights(arm, arms, row_of, LANE / height) for arm in arms]
    traces = [trace for arm, at in zip(arms, heights, strict=True) for trace in _arm(arm, at, signed)]
    if chance:
        traces.append(_chance({row_of[name]: value for name, value in chance.items() if name in row_of}))
    return framed(
        EDGES + len(names) * height,
        traces,
        x={"title": across, "range": span or _span(arms, reference, chance or {}, from_zero)},
        y=row_axis(names, showgrid=False),
        shapes=[
            *([] if reference is None else [upright_line(reference, **REFERENCE)]),
            *([] if allowed is None else [upright_band(*allowed, faded(light("muted"), 0.16))]),
        ],
        margin={"l": 8, "r": 16, "t": 8, "b": 44},
    )


def _span(
    arms: Sequence[DotArm], reference: float | None, chance: Mapping[str, float], from_zero: bool
) -> tuple[float, float] | None:
    """All dots, whiskers and chances, with a little air; zero only where it is asked for."""
    scores = [score for arm in arms for score in (*arm.rows.values(), *(s for of in arm.seeds.values() for s in of))]
    bounds = [bound for score in scores for bound in (score.value, score.low, score.high) if bound is not None]
    bounds += [*chance.values(), *([] if reference is None else [reference])]
    if from_zero or not bounds:
        return limits(bounds)
    air = 0.06 * (max(bounds) - min(bounds)) or 0.5
    return min(bounds) - air, max(bounds) + air


def _heights(arm: DotArm, arms: Sequence[DotArm], row_of: Mapping[str, int], lane: float) -> dict[str, float]:
    """Where an arm stands in each of its rows: the arms that have the row share it, in their order."""
    heights = {}
    for name in arm.rows:
        present = [each.name for each in arms if name in each.rows]
        heights[name] = row_of[name] + (present.index(arm.name) - (len(present) - 1) / 2) * lane
    return heights


def _arm(arm: DotArm, heights: Mapping[str, float], signed: bool) -> list[Trace]:
    colour, _, symbol = series_style(arm.slot)
    faint = [(heights[name], name, score) for name, scores in arm.seeds.items() if name in heights for score in scores]
    shared = {"mode": "markers", "legendgroup": arm.name, "name": escape(arm.name)}
    seeds = scatter(
        x=[score.value for _, _, score in faint],
        y=[y for y, _, _ in faint],
        marker={"color": faded(colour, 0.35), "size": SEED_SIZE, "line": {"width": 0}},
        text=[_hover(score.claim or "", name, score, signed) for _, name, score in faint],
        **shared,
    )
    means = scatter(
        x=[score.value for score in arm.rows.values()],
        y=[heights[name] for name in arm.rows],
        marker={"color": colour, "symbol": symbol, "size": SIZE},
        error_x=whiskers(arm.rows.values(), colour),
        text=[_hover(arm.name, name, score, signed) for name, score in arm.rows.items()],
        **shared,
    )
    return [seeds, means] if faint else [means]


def _hover(who: str, row: str, score: Score, signed: bool) -> str:
    return f"<b>{escape(who)}</b>, {escape(row)}<br>{interval(score, signed=signed)}"


def _chance(values: Mapping[int, float]) -> Trace:
    """A short upright line in each row that has one."""
    return scatter(
        x=[part for value in values.values() for part in (value, value, None)],
        y=[part for at in values for part in (at - 0.42, at + 0.42, None)],
        mode="lines",
        line={"color": light("ink"), "dash": "dot", "width": 1.5},
        opacity=0.6,
    )
