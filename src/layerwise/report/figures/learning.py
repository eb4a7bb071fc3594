"""Loss by step: a thin line for each seed, a bold one for the mean of an arm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean

from layerwise.report.figures.figure import Figure, Trace, scatter
from layerwise.report.figures.frame import framed, series_style
from layerwise.report.figures.palette import faded
from layerwise.report.text.number_format import tidy

HEIGHT = 420


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """The training of one arm: each run to its loss by step; `averaged` unless runs differ in more than the seed."""

    name: str
    seeds: Mapping[str, Mapping[int, float]]
    slot: int
    averaged: bool = True


def learning(curves: Sequence[LearningCurve], *, upwards: str) -> Figure:
    """Every seed of every arm on a logarithmic scale of loss; the mean is over the seeds that reached a step."""
    losses = [loss for curve in curves for seed in curve.seeds.values() for loss in seed.values()]
    seeds = [_seed(curve, name) for curve in curves for name in curve.seeds]
    return framed(
        HEIGHT,
        [*seeds, *(_mean(curve) for curve in curves if curve.averaged)],
        x={"title": "step", "rangemode": "tozero"},
        y={"title": upwards, "type": "log", **_ticks(losses)},
    )


def mean_curve(seeds: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """The mean over seeds at each step.

    >>> mean_curve({"a/0": {10: 1.0, 20: 0.5}, "a/1": {10: 3.0}})
    {10: 2.0, 20: 0.5}
    """
    steps = sorted({step for losses in seeds.values() for step in losses})
    return {step: fmean(losses[step] for losses in seeds.values() if step in losses) for step in steps}


def _ticks(losses: Sequence[float]) -> dict[str, object]:
    """Ticks at one, two and five times the powers of ten that the losses span, written out; at every whole multiple
    where those would be fewer than three.

    >>> _ticks([0.3, 2.0])["ticktext"], _ticks([4.1, 8.7])["ticktext"]
    (['0.2', '0.5', '1', '2'], ['3', '4', '5', '6', '7', '8'])
    """
    positive = [loss for loss in losses if loss > 0.0]
    if not positive:
        return {}
    powers = range(math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive))) + 1)
    spanned = [tick for tick in _multiples(powers, (1, 2, 5)) if min(positive) <= tick <= max(positive)]
    ticks = _multiples(powers, (1, 2, 5) if len(spanned) > 2 or max(positive) > 4 * min(positive) else range(1, 10))
    shown = [tick for tick in ticks if min(positive) / 2 <= tick <= max(positive)]
    return {"tickmode": "array", "tickvals": shown, "ticktext": [f"{tick:g}" for tick in shown]}


def _multiples(powers: Iterable[int], digits: Iterable[int]) -> list[float]:
    return [digit * 10.0**power for power in powers for digit in tuple(digits)]


def _seed(curve: LearningCurve, name: str) -> Trace:
    colour, _, _ = series_style(curve.slot)
    steps = sorted(curve.seeds[name])
    return scatter(
        x=steps,
        y=[curve.seeds[name][step] for step in steps],
        mode="lines",
        line={"color": faded(colour, 0.4), "width": 0.9},
        legendgroup=curve.name,
        name=escape(name),
    )


def _mean(curve: LearningCurve) -> Trace:
    colour, _, symbol = series_style(curve.slot)
    mean = mean_curve(curve.seeds)
    of = f"mean of {len(curve.seeds)} seeds" if len(curve.seeds) > 1 else "one seed"
    return scatter(
        x=list(mean),
        y=list(mean.values()),
        mode="lines",
        line={"color": colour, "width": 2.2},
        marker={"symbol": symbol},
        text=[f"<b>{escape(curve.name)}</b>, step {step}<br>{tidy(loss)}, {of}" for step, loss in mean.items()],
        legendgroup=curve.name,
        name=escape(curve.name),
    )
