"""How the weights of successive layers differ: smooth, without structure, or oscillating."""

from __future__ import annotations

from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.diagnosis.panels import by_type, null_levels, null_metric, type_name
from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.levels import Level, levels
from layerwise.report.figures.lines import hover_text, lined
from layerwise.report.page.chapter import Chapter, Heading, card, cards, lead, note, spaced
from layerwise.report.page.figure_slot import Choice, Picture, led, variants
from layerwise.report.page.markup import element
from layerwise.report.page.number_format import between
from layerwise.report.series import Band, Line, Rows, null_name
from layerwise.results.rows import Score

INDEPENDENT = -0.5
KINDS = {
    "smooth": "smooth",
    "no_lag_structure": "no lag structure",
    "oscillating": "oscillating",
    "unresolved": "not resolvable",
}
HEADING = Heading("deltas", "How weights change with depth", "Deltas")


def deltas(evidence: Evidence) -> Chapter:
    """Correlation and autocovariance by lag for a tensor type to choose, and lag 1 of all types side by side."""
    run = evidence.diagnosis
    types = run.tasks("deltas", "correlation")
    if not types:
        return HEADING.missing("Weight differences were not measured in this run (deltas).")
    choice = (Choice("Tensor type", tuple(type_name(task) for task in types)),)
    correlation = variants(types, lambda task: _by_lag(run, "correlation", task, INDEPENDENT))
    covariance = variants(types, lambda task: _by_lag(run, "autocovariance", task))
    pictures = led(
        {
            "Correlation of weight differences, by lag": Picture(
                "deltas-correlation", "Correlation by lag", correlation, choice
            ),
            "Autocovariance over depth, by lag": Picture(
                "deltas-covariance", "Autocovariance by lag", covariance, choice
            ),
        }
    )
    at_one = Picture("deltas-types", "Correlation at lag 1 of every tensor type", {(): _types(run, types)})
    body = (
        lead(
            "W(l+1) − W(l) against W(l+1+k) − W(l+k). Layers of equal norm that know nothing of each other give exactly"
            " −0.5 at lag 1 and zero after it; of other norms, what shuffled orders of the same layers give."
        ),
        element("p", _verdict(run, types), class_="lead"),
        next(iter(pictures.values())).controls(),
        cards(pictures, "grid pair"),
        spaced(card("Lag 1, every tensor type", at_one.html())),
        note(
            "Dotted at −0.5: independent layers. Grey: the same weights with the layers in random order, and a randomly"
            " initialised twin. Below −0.5 is oscillation, above it smoothness; on it there is no structure to explain."
        ),
    )
    return HEADING.chapter(body, (*pictures.values(), at_one))


def _by_lag(run: DiagnosisScores, metric: str, task: str, level: float | None = None) -> Figure | None:
    rows = _lags(run, metric, task)
    if not rows:
        return None
    bands = [
        Band(null_name(null), _lags(run, null_metric(metric, null), task)) for null in run.nulls("deltas", metric, task)
    ]
    line = Line(type_name(task), rows, 0)
    describe = hover_text("lag {}", "", run.level)
    return lined([line], bands, across="lag", upwards=metric, describe=describe, reference=level)


def _lags(run: DiagnosisScores, metric: str, task: str) -> Rows:
    subjects = run.subjects("deltas", metric, task).items()
    return {int(lag): score for lag, score in subjects if lag.isdecimal()}


def _types(run: DiagnosisScores, types: tuple[str, ...]) -> Figure:
    def at_one(metric: str) -> dict[str, Score]:
        return by_type(run, "deltas", metric, types, subject="1")

    nulls = null_levels({null: at_one(null_metric("correlation", null)) for null in ("shuffled", "random_twin")})
    measured = Level("measured", at_one("correlation"))
    return levels([*nulls, measured], across="correlation at lag 1", reference=INDEPENDENT)


def _verdict(run: DiagnosisScores, types: tuple[str, ...]) -> str:
    """What the measure itself concluded, over all tensor types or over the first."""
    for kind, words in KINDS.items():
        score = run.score("deltas", "1", kind, types[0])
        if score is not None:
            away = between(score.value, score.low, score.high, signed=True)
            return (
                f"Verdict over {type_name(types[0])}: {words}. Lag 1, norms divided out, beside random orders: {away}."
            )
    return ""
