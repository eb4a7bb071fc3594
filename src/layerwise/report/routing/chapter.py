"""The chapters of a routing: scores against mean layers, the verdicts, and which prompts get which plan."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import product

from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure, Trace, scatter
from layerwise.report.figures.frame import LEGEND, framed, interval, series_style, whiskers
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.group import STOPPED, ChapterGroup
from layerwise.report.page.markup import element
from layerwise.report.page.palette import faded, light
from layerwise.report.routing.lookup import ARMS, ROUTE, ROUTER, SCORES, RoutingScores
from layerwise.report.routing.tables import arm_table, routing_markdown, sentences, share_table, verdict_table
from layerwise.results.rows import Score

ROUTED = Heading(ROUTE, "A plan for each prompt, or one for all", "Routing")
SHARES = Heading("route_share", "Which prompts get which plan", "Plans")
HEIGHT = 460
SLOTS = {ROUTER: 1, "fixed": 0, "permuted": 3, "oracle": 2, "oracle_of_noise": 5}
"""The arms of the picture, and their colours."""


def routing_chapter(evidence: Evidence) -> Chapter:
    """Scores against mean layers, the verdicts, and every arm."""
    run = RoutingScores.of(evidence.data.scores)
    if not run.verdicts:
        return ROUTED.missing("No router was tested: layerwise route does.")
    kinds = [kind for kind in (run.objective, *SCORES) if run.curve(ROUTER, run.sets[0], kind)]
    kinds = list(dict.fromkeys(kinds))
    drawn: dict[tuple[int, ...], Figure] = {
        (at, number): _picture(run, task, kind)
        for (at, task), (number, kind) in product(enumerate(run.sets), enumerate(kinds))
        if run.curve(ROUTER, task, kind)
    }
    choices = (Choice("Task set", run.sets), Choice("Score", tuple(SCORES[kind] for kind in kinds)))
    picture = Picture("route-curve", "Score against mean layers", drawn, choices)
    margin = run.setting("margin")
    body = [
        lead(
            "The router has to beat the line of the best fixed plans at its own mean layers, and its own plans dealt "
            "out at random. Its time is among its layers."
        ),
        element("ul", *(element("li", text) for text in sentences(run)), class_="fates"),
        card(picture.alternative, picture.controls(), picture.html(), wide=True),
        note(
            "Dots: the candidates, each as the plan of all prompts. Every other point is of prompts that the router was"
            " not fitted to, with intervals over prompts. The oracle knows every outcome, and picks noise: the oracle"
            " of noise is one whose plans are right or wrong independently of one another."
        ),
        element("h3", "Verdicts"),
        verdict_table(run).html(),
        note(
            f"Alike: the interval lies within {margin:g} on both sides. Intervals and p-values of gains count that"
            " other prompts would have fitted another router; p-values are corrected over the task sets (Holm). A"
            " router that is asked another set than it was fitted to is held against the fixed plans that were best"
            " where it was fitted."
        ),
    ]
    for task in dict.fromkeys([*run.sets, *run.verdicts]):
        body += [element("h3", task), arm_table(run, task).html()]
    return ROUTED.chapter(body, (picture,))


def share_chapter(evidence: Evidence) -> Chapter:
    """The plans that the router gives to the prompts of each task."""
    run = RoutingScores.of(evidence.data.scores)
    if not run.verdicts:
        return SHARES.missing("No prompt was routed.")
    text = "Shares of the prompts, over all divisions, at the budget that is judged. The router is not told the task."
    return SHARES.chapter([lead(text), *(share_table(run, task).html() for task in run.sets)])


def _picture(run: RoutingScores, task: str, kind: str) -> Figure:
    traces = [_candidates(run, task, kind)]
    traces += [_arm(name, run.curve(name, task, kind)) for name in SLOTS if run.curve(name, task, kind)]
    score, layers = run.arm(ROUTER, task, kind), run.arm(ROUTER, task, f"{kind}_layers")
    if score is not None and layers is not None:
        traces.append(_judged(score, layers.value))
    return framed(
        HEIGHT, traces, x={"title": "mean layers"}, y={"title": SCORES[kind], "zeroline": False}, showlegend=True,
        legend=LEGEND, margin={"l": 48, "r": 16, "t": 58, "b": 44},
    )  # fmt: skip


def _candidates(run: RoutingScores, task: str, kind: str) -> Trace:
    scores = [(plan, row) for plan in run.plans if (row := run.rows.get(("route_plan", plan, task, kind))) is not None]
    return scatter(
        x=[run.value("route_plan", plan, task, "layers") for plan, _ in scores],
        y=[row.value for _, row in scores],
        mode="markers",
        marker={"color": faded(light("muted"), 0.6), "size": 7},
        text=[f"<b>{escape(plan)}</b><br>{interval(row)}" for plan, row in scores],
        name="one plan for all",
    )


def _arm(name: str, points: Sequence[tuple[float, Score]]) -> Trace:
    colour, _, symbol = series_style(SLOTS[name])
    words = ARMS[name]
    return scatter(
        x=[layers for layers, _ in points],
        y=[score.value for _, score in points],
        mode="lines+markers",
        line={"color": colour, "width": 2, "dash": "solid" if name in (ROUTER, "fixed") else "dot"},
        marker={"color": colour, "symbol": symbol, "size": 7},
        **({"error_y": whiskers([score for _, score in points], colour, thickness=1.5)} if name == ROUTER else {}),
        text=[f"<b>{words}</b><br>{layers:.2f} mean layers<br>{interval(score)}" for layers, score in points],
        name=words,
    )


def _judged(score: Score, layers: float) -> Trace:
    colour, _, _ = series_style(SLOTS[ROUTER])
    return scatter(
        x=[layers], y=[score.value], mode="markers",
        marker={"color": colour, "symbol": "star", "size": 15, "line": {"color": light("ink"), "width": 1}},
        text=[f"<b>router, judged here</b><br>{layers:.2f} mean layers<br>{interval(score)}"], name="judged here",
    )  # fmt: skip


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    run = RoutingScores.of(evidence.data.scores)
    limit = run.setting("limit")
    return (("–" if limit is None else f"{limit:g}", "mean layers at most"), (f"{len(run.plans):,}", "candidates"))


def _unfinished(evidence: Evidence) -> str | None:
    return None if RoutingScores.of(evidence.data.scores).verdicts else f"no verdict was given yet: {STOPPED}"


ROUTING = ChapterGroup(
    ROUTE,
    (routing_chapter, share_chapter),
    (routing_markdown,),
    present=lambda evidence: any(score.measure.startswith(ROUTE) for score in evidence.data.scores),
    tiles=_tiles,
    unfinished=_unfinished,
    opening=lambda evidence: (
        "Can a small router that reads the prompt choose a better plan than the one that is best for all prompts, at "
        "the same mean number of layers?"
    ),
)
