"""How quality falls with the share of the layers that a strategy affects, one colour a model."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from layerwise.report.comparison.coincidence import LEAST_LOST, MARGIN, coincidences
from layerwise.report.comparison.compared import Compared
from layerwise.report.comparison.overlay import (
    CurveMeasure,
    curve_lines,
    curve_measures,
    left_out,
    strategies,
)
from layerwise.report.comparison.tables import coincidence_rows, half_rows, measure_name, title
from layerwise.report.figures.axis import Line
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS, interval
from layerwise.report.figures.lines import common_span
from layerwise.report.figures.overlay import over_depth
from layerwise.report.page.chapter import Chapter, Heading, cards, lead, legend, note
from layerwise.report.page.figure_slot import Choice, Picture, led
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.number_format import tidy
from layerwise.report.page.wording import label, listed
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BENCHMARK

HEADING = Heading("curves", "How quality falls with the depth affected", "Curves")
KINDS = {"coincide": "resolved", "differ": "contradicted", "not resolvable": "unresolved"}
"""From a verdict on curves to the kind of its badge."""
HEIGHT = 250
ACROSS = "layers affected (% of the depth)"
READ = (
    "A point is what the report of its run shows at so many layers, and its band the interval there; of several plans"
    " of one size it is the mean. All figures have one vertical axis."
)
SAME = (
    "Each curve on the scale of its own model: 0 is the model as trained, 1 chance (for a loss that of guessing every"
    " token of the vocabulary alike). Curves are compared at the percentages of the one with fewer points; the other is"
    " read off the line between its neighbouring points. They coincide where the difference lies inside"
    f" ±{MARGIN:g} of the scale everywhere, and differ where it is shown to lie outside somewhere, corrected over the"
    " percentages; of several pairs also over the pairs (Holm). Where neither loses"
    f" {LEAST_LOST:g} of its scale, nothing is said. Intervals are joined as if the two were independent, which is"
    " wider than need be for models on one text."
)
UNSCALED = (
    "Whether curves coincide is asked on a scale from the model as trained to chance, which these runs do not have: the"
    " loss of guessing is stored since this version, so sweep the models again."
)
SCALED = " Benchmark scores are normalised: 0 is chance, 1 (dotted) the model as trained."


def curves(compared: Compared) -> Chapter:
    """A small figure for each strategy with all models in it, and the numbers at half of the depth."""
    measures = curve_measures(compared)
    pictures = _pictures(compared, measures)
    if not pictures:
        return HEADING.missing("No strategy was measured at two sizes in any of the runs (family painters).")
    first = next(iter(pictures.values()))
    slots, figures = compared.slots, tuple(picture.name for picture in pictures.values())
    shared = any(measure.measure == BENCHMARK for measure in measures)
    body = [
        lead("Strategy by strategy: the loss over the share of the layers affected. Lower is better."),
        legend(slots, figures, noun="Models"),
        first.controls(),
        cards(pictures),
        note(f"{READ}{SCALED if shared else ''}{_without(compared)}"),
        element("h3", f"At half of the depth: {measure_name(measures[0])}"),
        half_rows(compared, measures[0]).html(),
        note("Each run at its number of layers nearest to half of the depth; the share stands beside the number."),
        *_coincidence(compared),
    ]
    return HEADING.chapter(body, pictures.values())


def _coincidence(compared: Compared) -> Iterator[Safe]:
    """Whether the curves of each strategy coincide, by every measure that has a scale."""
    every = coincidences(compared)
    if not every:
        yield note(UNSCALED)
        return
    for measure in dict.fromkeys(each.measure for each in every):
        yield element("h3", f"Do the curves coincide? {measure_name(measure)}".rstrip())
        yield coincidence_rows([each for each in every if each.measure == measure], _badge).html()
    yield note(SAME)


def _badge(verdict: str) -> str:
    return element("span", verdict, class_=f"badge {KINDS[verdict]}")


def _pictures(compared: Compared, measures: tuple[CurveMeasure, ...]) -> dict[str, Picture]:
    shown = strategies(compared)
    choices = (Choice("Measure", tuple(measure_name(measure) for measure in measures)),)
    figures: dict[tuple[str, str], dict[tuple[int, ...], Figure]] = {key: {} for key in shown}
    for at, measure in enumerate(measures):
        drawn = {key: lines for key in shown if (lines := curve_lines(compared, *key, measure))}
        span = common_span([line.rows for lines in drawn.values() for line in lines])
        for key, lines in drawn.items():
            figures[key][at,] = _figure(lines, measure, span)
    return led(
        {
            title(*key): Picture(
                f"curves-{number}", f"Curves of {title(*key)}", by_measure, choices, rooted=True, bent=True
            )
            for number, (key, by_measure) in enumerate(figures.items())
        }
    )


def _figure(lines: tuple[Line, ...], measure: CurveMeasure, span: tuple[float, float] | None) -> Figure:
    def describe(name: str, share: float, score: Score) -> str:
        unit = "" if measure.is_share else " nats per token"
        seen = "" if score.mde is None or measure.is_share else f"<br>detectable above {tidy(score.mde)}"
        shown = interval(score, signed=not measure.is_share)
        return f"<b>{escape(name)}</b>, {share:.0f} % of the depth<br>{shown}{unit}{seen}"

    return over_depth(
        lines, across=ACROSS, upwards=measure_name(measure) if measure.is_share else DELTA_AXIS, describe=describe,
        height=HEIGHT, span=span, share=measure.measure == BENCHMARK,
    )  # fmt: skip


def _without(compared: Compared) -> str:
    """The models that have none of the curves, and the families that are not drawn, as sentences."""
    owned = {
        line.name
        for measure in curve_measures(compared)[:1]
        for key in strategies(compared)
        for line in curve_lines(compared, *key, measure)
    }
    without = [name for name in compared.names if name not in owned]
    no_curve = f" No curve was measured of {listed(without)}." if without else ""
    families = listed([label(family) for family in left_out(compared)])
    return f"{no_curve} Left to the reports of the runs: {families}." if families else no_curve
