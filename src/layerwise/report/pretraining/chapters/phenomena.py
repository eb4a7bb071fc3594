"""Which edge carries which phenomenon: a heat map of edges and phenomena, and the edges that fresh pairs confirm."""

from __future__ import annotations

import math
from html import escape

from layerwise.report.evidence import Evidence
from layerwise.report.figures.heatmaps import Cells, edge_map
from layerwise.report.page.answers import answers
from layerwise.report.page.chapter import Chapter, Heading, card, folded, lead, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.number_format import between, is_resolved, probability
from layerwise.report.page.table import Table
from layerwise.report.pretraining.lookup import EDGE_PHENOMENA, PretrainingScores, suite_name
from layerwise.report.pretraining.phenomena import groups, phenomenon_findings, split_task
from layerwise.results.rows import Score

HEADING = Heading(EDGE_PHENOMENA, "What each edge carries", "Phenomena")


def phenomena(evidence: Evidence) -> Chapter:
    """A map for each suite and model, the findings, and every confirmed edge in a table."""
    run = evidence.pretraining
    pictures = tuple(_map(run, suite, model, tasks) for (suite, model), tasks in groups(run).items())
    if not pictures:
        return HEADING.missing(
            "No edge was cut for a phenomenon in this run (edge_phenomena): layerwise layer-weights RUN --suite pairs."
        )
    table = confirmed_rows(run)
    body = (
        lead("Each edge is cut alone, and every phenomenon is asked again: what is lost was carried by that edge."),
        answers(tuple(phenomenon_findings(run))),
        *(card(picture.alternative, picture.html()) for picture in pictures),
        note(
            "A cell is the mean change of the margin by which the better sentence, or the right label, is preferred, on"
            " the half of the pairs that chooses; orange is lost by the cut. Cells are corrected together (Holm), and"
            " only what the other half confirms is called an effect. On tasks that a model was fine-tuned on its layer"
            " weights were held, and the interval is over sentences, not over fine-tunings."
        ),
        *((folded("Every confirmed effect", table.html()),) if table.body else ()),
    )
    return HEADING.chapter(body, pictures)


def confirmed_rows(run: PretrainingScores) -> Table:
    """A row for each edge and phenomenon that was chosen: the effect on fresh units, and whether it is confirmed."""
    body = []
    for task in run.tasks_of(EDGE_PHENOMENA, "confirmed"):
        suite, name, model = split_task(task)
        for edge, score in run.subjects(EDGE_PHENOMENA, "confirmed", task).items():
            verdict = "confirmed" if is_resolved(score, run.level) else "not confirmed"
            shown = between(score.value, score.low, score.high, signed=True)
            body.append((edge, suite_name(suite), name, model or "–", shown, probability(score.p_adjusted), verdict))
    return Table(("edge", "suite", "phenomenon", "model", "nats", "p", ""), tuple(body), numeric_from=4)


def _map(run: PretrainingScores, suite: str, model: str, tasks: list[str]) -> Picture:
    edges = list(dict.fromkeys(edge for task in tasks for edge in run.subjects(EDGE_PHENOMENA, "effect", task)))
    cells: Cells = {}
    for row, task in enumerate(tasks):
        for edge, score in run.subjects(EDGE_PHENOMENA, "effect", task).items():
            if math.isfinite(score.value):
                cells[edges.index(edge), row] = (score.value, _hover(run, edge, task, score))
    names = [split_task(task)[1] for task in tasks]
    title = f"{suite_name(suite)}{f', {model}' if model else ''}"
    key = "".join(character if character.isalnum() else "-" for character in f"{suite}-{model}")
    return Picture(f"phenomena-{key}", title, {(): edge_map(cells, edges, names)})


def _hover(run: PretrainingScores, edge: str, task: str, score: Score) -> str:
    parts = [f"<b>{escape(edge)}</b>, {escape(split_task(task)[1])}"]
    parts.append(f"{between(score.value, score.low, score.high, signed=True)} nats, p {probability(score.p_adjusted)}")
    fresh = run.score(EDGE_PHENOMENA, "confirmed", edge, task)
    if fresh is not None:
        words = "confirmed" if is_resolved(fresh, run.level) else "not confirmed"
        parts.append(f"fresh {between(fresh.value, fresh.low, fresh.high, signed=True)} nats: {words}")
    return "<br>".join(parts)
