"""The chapter of a rehearsal: quality against the nodes that are dead, a curve an arm; latency beside it."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.axis import Line
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.lines import common_span, hover_text, lined
from layerwise.report.page.chapter import Chapter, Heading, card, folded, lead, legend, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.group import ChapterGroup
from layerwise.report.page.markup import Safe, element
from layerwise.report.quantity import scaled
from layerwise.report.rehearsal.lookup import LATENCY, QUALITY, REHEARSAL, RehearsalScores
from layerwise.report.rehearsal.tables import MILLISECONDS, rehearsal_markdown, rehearsal_sentences, rehearsal_table

HEADING = Heading(REHEARSAL, "What is left when nodes die", "Dead nodes")
HEIGHT = 400
QUANTILES = {"p50": "half of them", "p95": "95 %", "p99": "99 %"}


def dead_nodes(evidence: Evidence) -> Chapter:
    """Quality by arm, latency by arm; choices, the replicas and the metric; a sentence an arm; every number."""
    run = RehearsalScores.of(evidence.data.scores)
    if not run.rows:
        return HEADING.missing("No swarm was rehearsed: layerwise swarm rehearse does.")
    copies = Choice("Replicas", tuple(map(str, run.replicas)))
    scores = Choice("Score", tuple(QUALITY[metric][0] for metric in run.qualities))
    quality = _picture(run, "rehearsal-quality", "Quality by dead nodes", run.qualities, (copies, scores), evidence)
    latency = _picture(
        run, "rehearsal-latency", "Latency by dead nodes", LATENCY,
        (copies, Choice("Within", tuple(QUANTILES.values()))), evidence,
    )  # fmt: skip
    slots = arm_slots(run.arms)
    pictures = (quality, latency)
    body = (
        lead(
            "The layers lie on nodes, and nodes die while requests are under way. A layer whose replicas are all dead "
            "is left out, and the model goes on with the others."
        ),
        legend({arm: slots[arm] for arm in run.arms}, tuple(picture.name for picture in pictures), noun="Arms"),
        *(card(picture.alternative, picture.controls(), picture.html(), wide=True) for picture in pictures),
        note(
            "Every arm meets the same draws of the nodes that die, so that differences are paired by draw. Intervals"
            " are over draws, each with the mean over the seeds of the arm; with no node dead there is one outcome and"
            " no interval. Quality is that of requests that came after the loss and were answered; latency is of all"
            " that were answered, the wait for dead nodes and replays included. Where all requests"
            " were refused a curve ends."
        ),
        *_null(run),
        element("ul", *(element("li", text) for text in rehearsal_sentences(run)), class_="fates"),
        folded("Every number", rehearsal_table(run).html()),
    )
    return HEADING.chapter(body, pictures)


def _null(run: RehearsalScores) -> tuple[Safe, ...]:
    """What guessing scores, in a sentence."""
    values = {round(100 * score.value, 1) for score in run.nulls.values()}
    return tuple(note(f"Dotted: always naming the commonest class scores {value:g} %.") for value in sorted(values))


def _picture(
    run: RehearsalScores, name: str, alternative: str, metrics: tuple[str, ...], choices: tuple[Choice, ...],
    evidence: Evidence,
) -> Picture:  # fmt: skip
    slots = arm_slots(run.arms)
    variants: dict[tuple[int, ...], Figure] = {}
    for at_metric, metric in enumerate(metrics):
        axis, scale = QUALITY.get(metric, ("milliseconds", MILLISECONDS))
        drawn = {
            at: [
                Line(arm, rows, slots[arm])
                for arm in run.arms
                if (rows := {
                    dead: scaled(score, scale)
                    for dead in run.dead
                    if (score := run.score(arm, replicas, dead, metric)) is not None
                })
            ]
            for at, replicas in enumerate(run.replicas)
        }  # fmt: skip
        span = common_span([line.rows for lines in drawn.values() for line in lines])
        null = next(iter(run.nulls.values()), None) if metric == "accuracy" else None
        for at, lines in drawn.items():
            variants[at, at_metric] = lined(
                lines, across=f"dead of {run.nodes} nodes", upwards=axis,
                describe=hover_text("{} nodes dead", axis, evidence.data.level), height=HEIGHT, span=span,
                reference=None if null is None else scale * null.value,
            )  # fmt: skip
    return Picture(name, alternative, variants, choices)


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    run = RehearsalScores.of(evidence.data.scores)
    return ((f"{len(run.arms):,}", "arms"), (f"{run.nodes:,}", "nodes"))


REHEARSED = ChapterGroup(
    REHEARSAL,
    (dead_nodes,),
    (rehearsal_markdown,),
    present=lambda evidence: any(score.measure == REHEARSAL for score in evidence.data.scores),
    tiles=_tiles,
)
