"""How the weights of successive layers differ: smooth, without structure, or oscillating."""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, card, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import NULL, WHOLE, Diagnosis
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.levels import Level, levels
from layerwise.report.figures.lines import lined, telling
from layerwise.report.markup import element
from layerwise.report.notation import between
from layerwise.report.picture import Choice, Picture
from layerwise.report.series import Band, Line, Rows, null_name
from layerwise.results.rows import Score

INDEPENDENT = -0.5
KINDS = {
    "smooth": "smooth",
    "no_lag_structure": "no lag structure",
    "oscillating": "oscillating",
    "unresolved": "not resolvable",
}
EVERY = "all tensor types"


def deltas(evidence: Evidence) -> Chapter:
    """Correlation and autocovariance by lag for a tensor type to choose, and lag 1 of all types side by side."""
    title, short = "How weights change with depth", "Deltas"
    found = evidence.diagnosis
    types = found.tasks("deltas", "correlation")
    if not types:
        return Chapter("deltas", title, short, (missing("Weight differences were not measured in this run (deltas)."),))
    choice = (Choice("Tensor type", tuple(EVERY if name == WHOLE else name for name in types)),)
    correlation = Picture("deltas-correlation", "Correlation by lag", _variants(found, types, "correlation"), choice)
    covariance = _variants(found, types, "autocovariance")
    pictures = [correlation]
    cards = [card("Correlation of weight differences, by lag", correlation.html())]
    if covariance:
        second = Picture("deltas-covariance", "Autocovariance by lag", covariance, choice, leader=correlation.name)
        pictures.append(second)
        cards.append(card("Autocovariance over depth, by lag", second.html()))
    at_one = Picture("deltas-types", "Correlation at lag 1 of every tensor type", {(): _types(found, types)})
    body = (
        lead(
            "W(l+1) − W(l) against W(l+1+k) − W(l+k). Layers of equal norm that know nothing of each other give exactly"
            " −0.5 at lag 1 and zero after it; of other norms, what shuffled orders of the same layers give."
        ),
        element("p", _verdict(found, types), class_="lead"),
        correlation.controls(),
        element("div", *cards, class_="grid pair"),
        element("div", card("Lag 1, every tensor type", at_one.html()), class_="spaced"),
        note(
            "Dotted at −0.5: independent layers. Grey: the same weights with the layers in random order, and a randomly"
            " initialised twin. Below −0.5 is oscillation, above it smoothness; on it there is no structure to explain."
        ),
    )
    return Chapter("deltas", title, short, body, (*pictures, at_one))


def _variants(found: Diagnosis, types: tuple[str, ...], metric: str) -> dict[tuple[int, ...], Figure]:
    variants: dict[tuple[int, ...], Figure] = {}
    level = INDEPENDENT if metric == "correlation" else None
    for at, task in enumerate(types):
        rows = _by_lag(found, metric, task)
        if rows:
            bands = [
                Band(null_name(null), _by_lag(found, f"{metric}{NULL}{null}", task))
                for null in found.nulls("deltas", metric, task)
            ]
            name = EVERY if task == WHOLE else task
            tell = telling("lag {}", "", found.level)
            variants[at,] = lined(
                [Line(name, rows, 0)], bands, across="lag", upwards=metric, tell=tell, reference=level
            )
    return variants


def _by_lag(found: Diagnosis, metric: str, task: str) -> Rows:
    subjects = found.subjects("deltas", metric, task).items()
    return {int(lag): score for lag, score in subjects if lag.isdecimal()}


def _types(found: Diagnosis, types: tuple[str, ...]) -> Figure:
    names = {task: EVERY if task == WHOLE else task for task in types}
    nulls = [
        Level(null_name(null), _at_one(found, f"correlation{NULL}{null}", names), slot, null=True)
        for slot, null in enumerate(("shuffled", "random_twin"))
    ]
    shown = [level for level in nulls if level.rows]
    return levels(
        [*shown, Level("measured", _at_one(found, "correlation", names))],
        across="correlation at lag 1",
        reference=INDEPENDENT,
    )


def _at_one(found: Diagnosis, metric: str, names: dict[str, str]) -> dict[str, Score]:
    scores = {shown: found.score("deltas", "1", metric, task) for task, shown in names.items()}
    return {shown: score for shown, score in scores.items() if score is not None}


def _verdict(found: Diagnosis, types: tuple[str, ...]) -> str:
    """What the measure itself concluded, over all tensor types or over the first."""
    for kind, words in KINDS.items():
        score = found.score("deltas", "1", kind, types[0])
        if score is not None:
            away = between(score.value, score.low, score.high, signed=True)
            name = EVERY if types[0] == WHOLE else types[0]
            return f"Verdict over {name}: {words}. Lag 1, norms divided out, beside random orders: {away}."
    return ""
