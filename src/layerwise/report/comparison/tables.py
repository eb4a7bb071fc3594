"""A comparison as tables: the models, the claims, what strategies cost at half of the depth, and the zones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from layerwise.report.comparison.coincidence import CurveCoincidence, coincidences
from layerwise.report.comparison.compared import Compared
from layerwise.report.comparison.overlay import (
    CurveMeasure,
    at_half,
    curve_lines,
    curve_measures,
    strategies,
)
from layerwise.report.comparison.verdicts import ByPaper, OverModels
from layerwise.report.comparison.zones import partitions, zones
from layerwise.report.evidence import ALL_TASKS, DELTA
from layerwise.report.kinds.sweep import MAPS
from layerwise.report.page.markup import join
from layerwise.report.page.number_format import between
from layerwise.report.page.table import Table
from layerwise.report.page.wording import label, listed
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BENCHMARK

ABSENT = "–"
PAINTERS = "painters"

Badge = Callable[[str], str]
"""From a verdict to how it is shown."""


def model_rows(compared: Compared) -> Table:
    """A row a model: its depth and parameters, and what it was measured on."""
    head = ("model", "layers", "parameters", "documents", "tokens", "text", "run")
    body = tuple(
        (
            run.name,
            f"{run.evidence.depth}" if run.evidence.depth else ABSENT,
            _whole(run.parameters),
            _whole(run.manifest.get("documents")),
            _whole(run.manifest.get("tokens")),
            str(run.manifest.get("corpus") or ABSENT),
            PurePath(run.folder).name,
        )
        for run in compared.runs
    )
    return Table(head, body, numeric_from=len(head))


def claim_rows(compared: Compared, claims: Sequence[OverModels], badge: Badge = str) -> Table:
    """A row a claim: its verdict in each run by itself, and whether it holds in every model and in any model."""
    head = ("claim", *compared.names, "in every model?", "in any model?")
    body = tuple(
        (
            each.published.name,
            *(badge(each.claims[name].verdict) for name in compared.names),
            *(_standing(each, standing, badge) for standing in (each.in_every, each.in_any)),
        )
        for each in claims
    )
    return Table(head, body, numeric_from=len(head))


def claim_sentence(claim: OverModels) -> str:
    """Where a claim holds after Holm's correction, and how many models that is said of."""
    count, models = claim.counts
    of = "one model" if models == 1 else f"{count} of {models} models" if count < models else "all models"
    if claim.in_every is None:
        return f"Measured in {of}: nothing can be said over models."
    parts = [f"Measured in {of}; in every one of these: {claim.in_every}; in any of these: {claim.in_any}."]
    if claim.shown:
        parts.append(f"After correction over models it holds in {listed(claim.shown)}.")
    if claim.refuted:
        parts.append(f"After correction over models it does not hold in {listed(claim.refuted)}.")
    lost = [name for name in claim.measured if _is_decided(claim, name) and name not in (*claim.shown, *claim.refuted)]
    if lost:
        parts.append(f"Decided in {listed(lost)} by itself, but not after correction.")
    return " ".join(parts)


def half_rows(compared: Compared, measure: CurveMeasure) -> Table:
    """A row a strategy: its number in every model at the size nearest to half of the depth."""
    body = []
    for family, strategy in strategies(compared):
        lines = {line.name: line for line in curve_lines(compared, family, strategy, measure)}
        cells = [_at(*at_half(lines[name]), measure) if name in lines else ABSENT for name in compared.names]
        if lines:
            body.append((title(family, strategy), *cells))
    return Table(("strategy", *compared.names), tuple(body))


def coincidence_rows(every: Sequence[CurveCoincidence], badge: Badge = str) -> Table:
    """A row for each strategy and pair of models: whether the curves coincide, and where they are farthest apart.

    Of more than two models a row over all pairs comes first.
    """
    body = []
    for each in every:
        name = title(each.family, each.strategy)
        if len(each.pairs) > 1:
            body.append((name, "all", badge(each.verdict), ABSENT, ABSENT))
        for pair, verdict in each.pairs:
            percent, difference = pair.greatest
            body.append((name, " – ".join(pair.models), badge(verdict), difference.signed, f"{percent:.0f} %"))
    return Table(("strategy", "models", "curves", "greatest difference", "at"), tuple(body), numeric_from=3)


def zone_rows(compared: Compared) -> Table:
    """A row for each model and similarity: layers before, in and after the clearest zone, and its contrast."""
    head = ("model", "similarity", "beginning", "middle", "ending", "contrast")
    body = []
    for metric, name in MAPS.items():
        for zone in zones(compared, metric):
            low, high = zone.bounds or (None, None)
            counts = (zone.beginning, zone.middle, zone.ending)
            shares = (f"{count} ({100 * count / zone.depth:.0f} %)" for count in counts)
            body.append((zone.model, name, *shares, between(zone.zone.contrast, low, high)))
    return Table(head, tuple(body), numeric_from=2)


def partition_rows(compared: Compared) -> Table:
    """A row a model: its zones as ranges of layers, how many layers come before, in and after the longest, and the
    borders.
    """
    head = ("model", "zones", "layers of each", "beginning", "middle", "ending", "contrast of the borders", "p of more")
    body = tuple(
        (
            name,
            f"{len(each.ranges)}",
            " | ".join(f"{first - 1}–{last - 1}" if last > first else f"{last - 1}" for first, last in each.ranges),
            *(f"{count} ({100 * count / each.states:.0f} %)" for count in (each.beginning, each.middle, each.ending)),
            each.borders_in_words,
            each.shown_p,
        )
        for name, each in partitions(compared).items()
    )
    return Table(head, body, numeric_from=3)


def comparison_lines(compared: Compared, claims: ByPaper) -> tuple[str, ...]:
    """The comparison as lines of the terminal: the models, the loss at half of the depth, and the claims."""
    measures, every = curve_measures(compared), coincidences(compared)
    tables = [model_rows(compared), *([half_rows(compared, measures[0])] if measures else [])]
    lines = [line for table in tables for line in (*table.lines(), "")]
    for measure in dict.fromkeys(each.measure for each in every):
        lines += [f"Do the curves coincide? {measure_name(measure)}, of the scale from as trained to chance"]
        lines += [*coincidence_rows([each for each in every if each.measure == measure]).lines(), ""]
    if zones_of_depth := partition_rows(compared).lines():
        lines += ["The zones of the depth", *zones_of_depth, ""]
    for paper, each in claims:
        measured = [claim for claim in each if claim.measured]
        lines += [paper.title, *claim_rows(compared, measured).lines(), ""]
    return tuple(lines[:-1])


def title(family: str, strategy: str) -> str:
    """A strategy as it is headed: with its family, unless it is one of the Painters."""
    return label(strategy) if family == PAINTERS else f"{label(strategy)} ({label(family)})"


def measure_name(measure: CurveMeasure) -> str:
    """What the curves show, as a choice: the loss, a task's loss, or a score of a benchmark."""
    if measure.measure == BENCHMARK:
        metric = label(measure.metric)
        return f"{metric} of the benchmarks" if measure.task == ALL_TASKS else f"{measure.task}, {metric} (normalised)"
    what = "loss" if measure.metric == DELTA else label(measure.metric)
    return what if measure.task == ALL_TASKS else f"{what}, {measure.task}"


def _standing(claim: OverModels, standing: str | None, badge: Badge) -> str:
    """Whether a claim holds over models, with how many of them that is said of where it is not all."""
    if standing is None:
        return ABSENT
    measured, models = claim.counts
    return join([badge(standing), f" ({measured} of {models})" if measured < models else ""])


def _at(share: float, score: Score, measure: CurveMeasure) -> str:
    shown = between(score.value, score.low, score.high, signed=not measure.is_share)
    return f"{shown} at {share:.0f} %"


def _is_decided(claim: OverModels, name: str) -> bool:
    return claim.claims[name].verdict not in ("not resolvable", "not measured")


def _whole(count: object) -> str:
    return f"{count:,}" if isinstance(count, int) else ABSENT
