"""How benchmarks fall to chance as a strategy touches more layers: their mean, their median, and each by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from layerwise.report.evidence import ALL_TASKS, Evidence
from layerwise.report.figures.benchmark_curves import benchmark_degradation
from layerwise.report.figures.figure import Figure
from layerwise.report.page.chapter import Chapter, Heading, cards, lead, legend, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.palette import series_slots
from layerwise.report.sweep.benchmark_curves import MIDDLES, BenchmarkScores, benchmark_falls
from layerwise.report.sweep.window import PUBLISHED_FAMILY

SMALL = 235  # height of a figure of one benchmark
MIDDLE = 340
HEADING = Heading("benchmark", "How benchmarks fall to chance", "Benchmarks")


def benchmarks(evidence: Evidence) -> Chapter:
    """A figure for the mean and one for the median of the benchmarks, one for each of them, and how fast they fall."""
    scores = BenchmarkScores.of(evidence)
    middles = {
        f"{name} of the benchmarks": picture
        for name in MIDDLES
        if (picture := _picture(evidence, scores, ALL_TASKS, name, MIDDLE))
    }
    single = {
        f"{task} ({metric})": picture
        for task, metric in scores.metrics.items()
        if (picture := _picture(evidence, scores, task, metric, SMALL))
    }
    table = benchmark_falls(evidence, scores)
    if not middles and not single and not table.body:
        return HEADING.missing("No benchmark that the model answers better than chance was measured (--tasks).")
    body = [
        lead(
            "Scores are on one scale: 0 is what guessing scores (dotted), 1 what the model as trained scores (dashed)."
            " To the right a strategy touches more layers."
        ),
        *_drawn(evidence, middles, single),
    ]
    if table.body:
        body += [
            element("h3", "How fast each falls"),
            table.html(),
            note(
                "The fall is the slope of the line from the model as trained through the scores at all windows of more"
                " than one layer: what is lost of the scale for each tenth of the depth that is affected."
            ),
        ]
    return HEADING.chapter(tuple(body), (*middles.values(), *single.values()))


def _drawn(evidence: Evidence, middles: Mapping[str, Picture], single: Mapping[str, Picture]) -> Iterator[Safe]:
    """The figures under their legend: those over the benchmarks first, then each benchmark; nothing without any."""
    figures = (*middles.values(), *single.values())
    if not figures:
        return
    strategies = {record.strategy for record in evidence.data.plans if record.family == PUBLISHED_FAMILY}
    slots = {name: slot for name, slot in series_slots(evidence.strategies).items() if name in strategies}
    yield legend(slots, tuple(picture.name for picture in figures))
    yield cards(middles)
    yield element("h3", "Benchmark by benchmark")
    yield cards(single)
    yield note(
        "Bands are 95 % intervals, paired over the documents of a benchmark; the error of the model as trained is in"
        " them. A median of few benchmarks hides the one that collapsed."
    )


def _picture(evidence: Evidence, scores: BenchmarkScores, task: str, metric: str, height: int) -> Picture | None:
    drawn = [each for each in scores.curves(evidence, PUBLISHED_FAMILY, task, metric) if len(each.points) > 1]
    if not drawn:
        return None
    title = metric if task == ALL_TASKS else task
    number = MIDDLES.index(metric) if task == ALL_TASKS else len(MIDDLES) + list(scores.metrics).index(task)
    figure: Figure = benchmark_degradation(evidence, drawn, title, height=height)
    return Picture(f"benchmark-{number}", f"Degradation of {title} from the model as trained to chance", {(): figure})
