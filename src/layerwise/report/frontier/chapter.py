"""The chapter of a frontier: nats against milliseconds, an arm a colour with its line, the answer, and every number."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure, Trace, scatter
from layerwise.report.figures.frame import DELTA_AXIS, framed, interval, series_style, whiskers
from layerwise.report.frontier.lookup import ARMS, FRONTIER, FrontierScores, TimedPoint
from layerwise.report.frontier.tables import WORDS, frontier_markdown, frontier_table, headline, verdict_sentences
from layerwise.report.page.chapter import Chapter, Heading, card, folded, lead, legend, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.group import STOPPED, ChapterGroup
from layerwise.report.page.markup import element
from layerwise.report.page.wording import NATS
from layerwise.results.rows import Score

HEADING = Heading(FRONTIER, "Is parallel ever the best way to spend a millisecond?", "Frontier")
HEIGHT = 520
SLOTS = {"identity": 5, "skip": 0, "parallel": 4, "parallel, fused": 1, "looped": 2, "speculation": 3, "healed": 8}
"""The colour of each arm."""


def frontier_chapter(evidence: Evidence) -> Chapter:
    """The picture, phase by phase; the answer in words; the rule; every number."""
    run = FrontierScores.of(evidence.data.scores)
    if not run.points:
        return HEADING.missing("No frontier was measured: layerwise frontier does.")
    picture = Picture(
        "frontier", "What is lost against the milliseconds of a pass",
        {(at,): _figure(run, setting) for at, setting in enumerate(run.settings)},
        (Choice("Phase", tuple(setting.partition(",")[0] for setting in run.settings)),), rooted=True, bent=True,
    )  # fmt: skip
    slots = {ARMS[arm]: SLOTS[arm] for arm in run.arms}
    body = (
        lead("Every point is a plan, at what it loses on text that chose none of them and at what a pass takes."),
        element("ul", *(element("li", headline(run, setting)) for setting in run.settings), class_="fates"),
        legend(slots, (picture.name,), noun="Arms"),
        card(picture.alternative, picture.controls(), picture.html(), wide=True),
        note(
            "Lower is better, further left is quicker. A line joins the points of an arm that none of its quicker ones"
            " matches. Bars are intervals: over documents upwards, over rounds sideways. A draft changes no text; its"
            " milliseconds are those of the model as trained times the ratio of both ways of generating. Every plan ran"
            " fused, and the model as trained and parallel plans in turn as well."
        ),
        note(
            "The rule was stated beforehand. A parallel plan is beaten where it loses more than the plan of another arm"
            " that surely takes at most 2 % more time and lost least on the text that chose plans; it is best where it"
            " loses less than each that possibly does. Differences are paired by document, and corrected over all"
            " parallel plans, both questions and all phases (Holm)."
        ),
        *(
            folded(f"Every parallel plan beside its rival: {setting}", element("ul", *(
                element("li", text) for text in verdict_sentences(run, setting)
            )))
            for setting in run.settings
        ),
        *(
            element("div", element("h3", setting), frontier_table(run, setting).html(), class_="spaced")
            for setting in run.settings
        ),
    )  # fmt: skip
    return HEADING.chapter(body, (picture,))


def _figure(run: FrontierScores, setting: str) -> Figure:
    traces = [trace for arm in run.arms for trace in _arm(run, setting, arm)]
    return framed(
        HEIGHT, traces, x={"title": f"milliseconds of a pass ({setting})"}, y={"title": DELTA_AXIS},
        margin={"l": 48, "r": 16, "t": 12, "b": 44},
    )  # fmt: skip


def _arm(run: FrontierScores, setting: str, arm: str) -> list[Trace]:
    """The points of an arm with both intervals, and the line through those that are its best."""
    colour, _, symbol = series_style(SLOTS[arm])
    points = run.timed(setting, arm)
    if not points:
        return []
    best = run.pareto(setting, arm)
    line = scatter(
        x=[ms.value for _, ms in best], y=[point.loss.value for point, _ in best], mode="lines",
        line={"color": colour, "width": 1.5}, legendgroup=ARMS[arm], name=ARMS[arm],
    )  # fmt: skip
    dots = scatter(
        x=[ms.value for _, ms in points],
        y=[point.loss.value for point, _ in points],
        error_x=whiskers([ms for _, ms in points], colour, thickness=1),
        error_y=whiskers([point.loss for point, _ in points], colour, thickness=1),
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 12 if arm == "identity" else 9},
        text=[_hover(run, setting, point, ms) for point, ms in points],
        legendgroup=ARMS[arm],
        name=ARMS[arm],
    )
    return [line, dots] if len(best) > 1 else [dots]


def _hover(run: FrontierScores, setting: str, point: TimedPoint, ms: Score) -> str:
    verdict = run.verdict(point.name, setting)
    words = "" if verdict is None else f"<br>{WORDS[verdict]}"
    return (
        f"<b>{escape(ARMS[point.arm])}</b>, {escape(point.kind)}<br>{escape(point.name)}<br>"
        f"{interval(point.loss, signed=True)} nats per token<br>{interval(ms)} ms{words}"
    )


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    run = FrontierScores.of(evidence.data.scores)
    return ((f"{len(run.points):,}", "points"), (f"{len(run.arms):,}", "arms"))


def _unfinished(evidence: Evidence) -> str | None:
    points: Sequence[TimedPoint] = FrontierScores.of(evidence.data.scores).points
    return None if points else f"not everything was measured yet: {STOPPED}"


FRONTIERS = ChapterGroup(
    FRONTIER,
    (frontier_chapter,),
    (frontier_markdown,),
    present=lambda evidence: any(
        score.measure == FRONTIER or score.measure == "frontier_draft" for score in evidence.data.scores
    ),
    tiles=_tiles,
    unfinished=_unfinished,
    counts=("documents", "tokens"),
    opening=lambda evidence: f"What is lost for the milliseconds that are saved, by every way of saving them? {NATS}",
)
