"""How alike hidden states are in each model: the maps at one size and on one scale, and their clearest zones."""

from __future__ import annotations

from layerwise.report.comparison.compared import Compared, ComparedRun
from layerwise.report.comparison.tables import zone_rows
from layerwise.report.derived.similarity import Matrix, clearest_zone, matrix
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.heatmaps import similarity_map
from layerwise.report.kinds.sweep import MAPS
from layerwise.report.page.chapter import Chapter, Heading, cards, lead, note
from layerwise.report.page.figure_slot import Choice, Picture, led
from layerwise.report.page.markup import element
from layerwise.report.page.wording import listed

HEADING = Heading("similarity", "How alike hidden states are", "Similarity")


def similarity(compared: Compared) -> Chapter:
    """A map a model, its clearest zone framed, and how many layers lie before, in and after the zones."""
    every = {(run.name, metric): matrix(run.evidence.run, metric) for run in compared.runs for metric in MAPS}
    matrices = {key: values for key, values in every.items() if values is not None}
    if not matrices:
        return HEADING.missing("The similarity of hidden states was measured in none of the runs.")
    metrics = tuple(metric for metric in MAPS if any(key[1] == metric for key in matrices))
    low = min(0.0, *(value for values in matrices.values() for row in values for value in row if value is not None))
    pictures = led({run.name: _picture(run, metrics, matrices, low) for run in compared.runs})
    without = [run.name for run in compared.runs if run.name not in pictures]
    missing = f" Similarity was not measured in {listed(without)}." if without else ""
    body = [
        lead("Blocks of one colour are zones: layers that pass on states of the same kind. State 0 is the embedding."),
        next(iter(pictures.values())).controls(),
        cards(pictures),
        note(
            f"All maps have one size and one scale, {low:.2g} to 1, however deep the model. The frame is the clearest"
            f" zone: the run of three states or more that are most alike compared with the others.{missing}"
        ),
        element("h3", "The clearest zones"),
        zone_rows(compared).html(),
        note(
            "Layers before, in and after the zone, with their shares of the depth; the contrast is the mean similarity"
            " within the zone less that with all other states. The zone was chosen for its contrast on these rows,"
            " which the interval does not correct for; whether the middle is alike at all is a claim above."
        ),
    ]
    return HEADING.chapter(body, pictures.values())


def _picture(
    run: ComparedRun, metrics: tuple[str, ...], matrices: dict[tuple[str, str], Matrix], low: float
) -> Picture:
    drawn: dict[tuple[int, ...], Figure] = {
        (at,): _map(matrices[run.name, metric], low)
        for at, metric in enumerate(metrics)
        if (run.name, metric) in matrices
    }
    choices = (Choice("Similarity", tuple(MAPS[metric] for metric in metrics)),)
    return Picture(f"similarity-{run.slot}", f"Similarity of hidden states, {run.name}", drawn, choices)


def _map(values: Matrix, low: float) -> Figure:
    zone = clearest_zone(values)
    return similarity_map(values, low, 1.0, zone=None if zone is None else (zone.first, zone.last))
