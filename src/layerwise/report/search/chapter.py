"""The chapter of a search: the front as a picture, the confirmed table, and what all of it was measured on."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure, Trace, scatter
from layerwise.report.figures.frame import DELTA_AXIS, LEGEND, framed, interval, series_style, whiskers
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.group import STOPPED, ChapterGroup
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.palette import faded, light
from layerwise.report.page.table import Table
from layerwise.report.page.wording import NATS
from layerwise.report.search.lookup import ARMS, LATENCY, SEARCH, UNITS, SearchScores
from layerwise.report.search.tables import confirmed_table, front_table, main_unit, price, search_markdown, sentences
from layerwise.results.rows import Score

FRONT = Heading(SEARCH, "What was reached, and what it loses", "Search")
CONFIRMED = Heading("search_confirmed", "Beside what costs no search", "Controls")
TIMES = Heading(LATENCY, "Milliseconds, layer by layer", "Milliseconds")
HEIGHT = 460
_SCALE = {"bytes": 1e6}
_AXES = {**UNITS, "bytes": "megabytes of weights"}


def front_chapter(evidence: Evidence) -> Chapter:
    """The front against each price; every point is a plan, and stands below as text."""
    run = SearchScores.of(evidence.data.scores)
    if run.chosen is None:
        return FRONT.missing("No plan was searched for: layerwise search does.")
    picture = Picture(
        "search-front", "Quality against price", {(at,): _front(run, unit) for at, unit in enumerate(run.units)},
        (Choice("Price", tuple(UNITS[unit] for unit in run.units)),),
    )  # fmt: skip
    body = (
        lead("Every point is a plan. The line is the front: no other plan that was searched is as cheap and as good."),
        element("ul", *(element("li", text) for text in sentences(run, evidence.data.level)), class_="fates"),
        card(picture.alternative, picture.controls(), picture.html(), wide=True),
        note(
            "Dots: every plan that read all of the search text, at its loss there. The front, the chosen plan and the"
            " arms stand at their loss on text that chose nothing, measured once, with its interval; the front may bend"
            " back there, because it was the best of many on another text."
        ),
        element("h3", "The front, to copy"),
        _with_plans(front_table(run, main_unit(run))),
    )
    return FRONT.chapter(body, (picture,))


def confirmed_chapter(evidence: Evidence) -> Chapter:
    """The chosen plan beside its controls."""
    run = SearchScores.of(evidence.data.scores)
    if run.chosen is None:
        return CONFIRMED.missing("No plan was chosen yet.")
    body = (
        lead(
            "Sets of the same size that cost one pass, or none: if these lose no more than the chosen plan, the search "
            "was not worth its time."
        ),
        _with_plans(confirmed_table(run, evidence.data.level), column=1),
        note(
            "Differences are paired by document, with bootstrap intervals; p-values are from sign flips of whole"
            " documents, corrected over the arms (Holm). Not resolvable: the text is too short to distinguish the two."
            " The texts for search, for the choice among finalists and for this table have no document in common."
        ),
    )
    return CONFIRMED.chapter(body)


def times_chapter(evidence: Evidence) -> Chapter:
    """The measured table of milliseconds."""
    run = SearchScores.of(evidence.data.scores)
    pieces = {subject: score for (subject, metric), score in run.times.items() if metric == "ms"}
    if not pieces:
        return TIMES.missing("Milliseconds were not measured: --latency, or a budget of ms, does.")
    setting = next(iter(pieces.values())).task
    layers = [name for name in pieces if name.isdecimal()]
    head = ("layer", "ms", "attn alone", "mlp alone")
    body = []
    for name in sorted(layers, key=int):
        own = (pieces.get(f"{name}{half}") for half in ("", ".attn", ".mlp"))
        body.append((name, *("–" if each is None else f"{each.value:.3f}" for each in own)))
    rest = (("all else", f"{pieces['rest'].value:.3f}", "–", "–"),)
    text = f"Measured inside the model's own pass: {setting}. A plan is predicted as the sum of its steps."
    return TIMES.chapter((lead(text), Table(head, (*body, *rest)).html()))


def _front(run: SearchScores, unit: str) -> Figure:
    """Quality against one price."""
    scale = _SCALE.get(unit, 1.0)
    front = run.front(unit)
    traces = [_cloud(run, unit, scale), _line(run, front, unit, scale, "front", 0, "lines+markers")]
    for slot, (name, plan) in enumerate(run.arms.items(), start=1):
        traces.append(_line(run, [plan], unit, scale, ARMS[name], slot, "markers"))
    traces.append(_line(run, [run.chosen or ""], unit, scale, "chosen", 6, "markers"))
    return framed(
        HEIGHT, traces, x={"title": _AXES[unit]}, y={"title": DELTA_AXIS}, showlegend=True, legend=LEGEND,
        margin={"l": 48, "r": 16, "t": 34, "b": 44},
    )  # fmt: skip


def _cloud(run: SearchScores, unit: str, scale: float) -> Trace:
    plans = run.searched
    return scatter(
        x=[(run.value(plan, unit, "price") or 0.0) / scale for plan in plans],
        y=[run.value(plan, "search", "delta_nll") for plan in plans],
        mode="markers",
        marker={"color": faded(light("muted"), 0.45), "size": 5},
        text=[_hover(run, plan, "searched", "search") for plan in plans],
        name="searched",
    )


def _line(
    run: SearchScores, plans: Sequence[str], unit: str, scale: float, name: str, slot: int, mode: str
) -> Trace:  # fmt: skip
    colour, _, symbol = series_style(slot)
    # The model as trained has no row: losses are differences to it.
    trained = Score(SEARCH, "", "report", "delta_nll", 0.0)
    losses = [run.score(plan, "report", "delta_nll") or trained for plan in plans]
    large = name == "chosen"
    return scatter(
        x=[(run.value(plan, unit, "price") or 0.0) / scale for plan in plans],
        y=[loss.value for loss in losses],
        error_y=whiskers(losses, colour, thickness=1.5),
        mode=mode,
        line={"color": colour, "width": 1.5},
        marker={"color": colour, "symbol": "star" if large else symbol, "size": 14 if large else 9},
        text=[_hover(run, plan, name, "report") for plan in plans],
        name=escape(name),
    )


def _hover(run: SearchScores, plan: str, name: str, text: str) -> str:
    score = run.score(plan, text, "delta_nll")
    loss = "0" if score is None else interval(score, signed=True)
    prices = ", ".join(price(run, plan, unit) for unit in run.units)
    return f"<b>{escape(name)}</b><br>{escape(plan)}<br>{loss} nats, {text} text<br>{prices}"


def _with_plans(table: Table, column: int = 0) -> Safe:
    """The table with its plans as code that one click selects whole."""
    head = element("tr", *(element("th", text, scope="col") for text in table.head))
    rows = []
    for row in table.body:
        cells = [
            element("td", element("code", text, style="user-select: all") if at == column else text, class_="text")
            for at, text in enumerate(row)
        ]
        rows.append(element("tr", *cells))
    whole = element("table", element("thead", head), element("tbody", *rows))
    return element("div", whole, class_="scroll stacked", tabindex="0")


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    run = SearchScores.of(evidence.data.scores)
    return ((run.budget or "–", "budget"), (f"{len(run.searched):,}", "plans on all of the search text"))


def _unfinished(evidence: Evidence) -> str | None:
    return None if SearchScores.of(evidence.data.scores).chosen else f"no plan was chosen yet: {STOPPED}"


SEARCHED = ChapterGroup(
    SEARCH,
    (front_chapter, confirmed_chapter, times_chapter),
    (search_markdown,),
    present=lambda evidence: any(score.measure in (SEARCH, "search_round", LATENCY) for score in evidence.data.scores),
    tiles=_tiles,
    unfinished=_unfinished,
    opening=lambda evidence: (
        f"Which plan of this price loses least, and is it better than what costs no search? {NATS}"
    ),
)
