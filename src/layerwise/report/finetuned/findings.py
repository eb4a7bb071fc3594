"""From rows to sentences: which strategy leaves most, where about half of the layers are affected."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.evidence import Evidence
from layerwise.report.finding import Finding, Number, State
from layerwise.report.finetuned.lookup import ALL, MEAN, NORMALISED, FineTunedPlans
from layerwise.report.finetuned.tables import Column, columns, heading, plan_rows, strategy_curves
from layerwise.report.page.number_format import between
from layerwise.report.page.plain_markdown import answered
from layerwise.report.page.wording import label
from layerwise.report.pretraining.lookup import suite_name
from layerwise.report.sweep.curves import Point
from layerwise.report.sweep.window import distinct


def finetuned_findings(run: FineTunedPlans, depth: int) -> tuple[Finding, ...]:
    """A finding for every suite, arm and family of several strategies."""
    results = (
        _strongest(run, suite, arm, family, depth)
        for suite in run.suites
        for arm in run.arms
        for family in run.families
    )
    return tuple(finding for finding in results if finding is not None)


def finetuned_lines(run: FineTunedPlans, depth: int) -> tuple[str, ...]:
    """A line for each finding."""
    return tuple(f"- {finding.question} {finding.text}" for finding in finetuned_findings(run, depth))


def _strongest(run: FineTunedPlans, suite: str, arm: str, family: str, depth: int) -> Finding | None:
    column = _column(run, suite, arm)
    if column is None:
        return None
    curves = strategy_curves(run, suite, arm, family, column)
    sizes = [point.affected for curve in curves for point in curve.points]
    shared = [size for size in dict.fromkeys(sizes) if sizes.count(size) == max(map(sizes.count, sizes))]
    if not shared or len(curves) < 2:
        return None
    affected = min(shared, key=lambda size: (abs(2 * size - depth), size))
    at = {curve.strategy: point for curve in curves if (point := curve.at(affected)) is not None}
    ranked = sorted(distinct(at).items(), key=lambda item: -item[1].value)
    if len(ranked) < 2:
        return None
    state = _state(ranked[0][1], ranked[-1][1])
    verdict = {
        "resolved": f"{label(ranked[0][0])} leaves more than {label(ranked[-1][0])}: ",
        "unresolved": "Not resolvable: ",
        "described": "",
    }[state]
    return Finding(
        f"What is left of {heading(column)} of {arm} fine-tuned with {affected} of {depth} layers affected?",
        (verdict[:1].upper() + verdict[1:], *_listing(ranked), "."),
        state,
    )


def _column(run: FineTunedPlans, suite: str, arm: str) -> Column | None:
    """The mean on the scale from chance, else the plain mean, else the one task that there is."""
    wanted = ((ALL, f"{NORMALISED}mean"), (ALL, MEAN), *columns(run, suite, arm))
    return next((column for column in wanted if run.has(suite, arm, *column)), None)


def _state(most: Point, least: Point) -> State:
    if most.low is None or least.high is None:
        return "described"
    return "resolved" if most.low > least.high else "unresolved"


def _listing(ranked: list[tuple[str, Point]]) -> Iterator[str]:
    for number, (strategy, point) in enumerate(ranked):
        yield f"{', ' if number else ''}{label(strategy)} "
        yield Number(between(point.value, point.low, point.high))


def finetuned_markdown(evidence: Evidence) -> Iterator[str]:
    """What models can be taught under plans: the findings, and a table for each suite and arm."""
    run = evidence.finetuned
    yield answered(finetuned_findings(run, evidence.depth))
    for suite in run.suites:
        for arm in run.arms:
            yield plan_rows(run, suite, arm).section(f"{suite_name(suite)} under plans, {arm}")
