"""The chapter of timed passes: a dot with its interval for every plan and phase, and every number."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.evidence import Evidence
from layerwise.report.figures.dot_plot import Dots, dots
from layerwise.report.figures.figure import Figure
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.group import ChapterGroup
from layerwise.report.page.markup import element
from layerwise.report.page.number_format import fixed
from layerwise.report.page.table import Table
from layerwise.report.timing.lookup import TIME, TimeScores
from layerwise.results.rows import Score

HEADING = Heading(TIME, "How long a pass takes", "Milliseconds")


def times_chapter(evidence: Evidence) -> Chapter:
    """Milliseconds and ratios of everything that was timed, by phase."""
    run = TimeScores.of(evidence.data.scores)
    if not run.rows:
        return HEADING.missing("Nothing was timed: layerwise time does, and layerwise frontier.")
    picture = Picture(
        "times", "Milliseconds of a pass", {(at,): _figure(run, setting) for at, setting in enumerate(run.settings)},
        (Choice("Phase", tuple(setting.partition(",")[0] for setting in run.settings)),),
    )  # fmt: skip
    body = (
        lead("Passes of all plans in turns, each as layerwise runs it in place, embedding and head with it."),
        card(picture.alternative, picture.controls(), picture.html(), wide=True),
        *(
            element("div", element("h3", setting), times_table(run, setting).html(), class_="spaced")
            for setting in run.settings
        ),
        note(
            "Medians over rounds, of each of which the fastest pass counts; intervals lie between the order statistics"
            " that hold a median in 95 of 100 draws. A ratio is taken to the first plan within each round."
        ),
    )
    return HEADING.chapter(body, (picture,))


def times_table(run: TimeScores, setting: str) -> Table:
    """A row for everything that was timed in a setting."""
    body = []
    for subject in run.subjects(setting):
        cells = (_text(run.score(setting, subject, metric)) for metric in ("ms", "ratio"))
        body.append((subject, *cells))
    return Table(("plan", "ms", "x the first"), tuple(body))


def time_lines(run: TimeScores) -> Iterator[str]:
    """Every setting with its table, for a terminal."""
    for setting in run.settings:
        yield f"{setting}:"
        yield from times_table(run, setting).lines()


def times_markdown(evidence: Evidence) -> Iterator[str]:
    """The table of every setting."""
    run = TimeScores.of(evidence.data.scores)
    for setting in run.settings:
        yield times_table(run, setting).section(f"How long a pass takes, {setting}")


def _text(score: Score | None) -> str:
    """Three decimals: microseconds, and thousandths of a ratio."""
    if score is None or score.low is None or score.high is None:
        return "–"
    return f"{fixed(score.value, 3)} [{fixed(score.low, 3)}, {fixed(score.high, 3)}]"


def _figure(run: TimeScores, setting: str) -> Figure:
    rows = {subject: run.rows[setting, subject, "ms"] for subject in run.subjects(setting)}
    return dots([Dots("milliseconds", 0, rows)], across="milliseconds of a pass")


def _rounds(evidence: Evidence) -> int:
    return max((row.documents or 0 for row in TimeScores.of(evidence.data.scores).rows.values()), default=0)


TIMED = ChapterGroup(
    TIME,
    (times_chapter,),
    (times_markdown,),
    present=lambda evidence: bool(TimeScores.of(evidence.data.scores).rows),
    tiles=lambda evidence: ((f"{_rounds(evidence):,}", "rounds"),),
)
