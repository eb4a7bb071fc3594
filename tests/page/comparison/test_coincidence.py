"""Coincidence of simulated curves of models of several depths."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from layerwise.page import ReportData
from layerwise.page.writers import terminal_lines
from layerwise.plan import Plan
from layerwise.results.estimate import Estimate
from layerwise.results.rows import UNIFORM, Score
from layerwise.studies.compare.over_depth import compute_curves as curve_rows
from layerwise.studies.compare.over_models import MARGIN, MIN_LOST, Pair, compare_curves, subtract_curves
from layerwise.studies.compare.page import COMPARISON
from page import synthetic
from page.comparison.several import named
from page.synthetic import plan_records

Curve = Callable[[float], float]
"""Share of the depth skipped to share of the scale lost."""

VOCABULARY = 400


def usual(depth: float) -> float:
    return 0.8 * depth**1.3


def steeper(depth: float) -> float:
    return usual(depth) + 0.2 * math.sin(math.pi * depth)


def swept(curve: Curve, depth: int) -> ReportData:
    trained = 1.0 + 0.05 * depth
    scale = math.log(VOCABULARY) - trained
    skips = {r.plan: r for r in plan_records(depth, ("painters",)) if r.strategy == "skip" and r.affected > 1}
    rows = [
        Score("run", UNIFORM, math.log(VOCABULARY), section="model"),
        Score("effect", "nll", trained, trained - 0.01, trained + 0.01, plan=str(Plan.identity(depth)), task="text"),
    ]
    for plan, record in skips.items():
        lost = curve(record.affected / depth)
        bounds = (scale * each for each in (lost, lost - 0.01, lost + 0.01))
        rows.append(Score("effect", "delta_nll", *bounds, plan=plan, task="text"))
    manifest = {"depth": depth, "model": f"m{depth}", "weight_hash": f"w{depth}"}
    return ReportData(manifest, tuple(skips.values()), tuple(rows))


def compared(runs: Sequence[ReportData]) -> ReportData:
    names = [str(run.manifest["model"]) for run in runs]
    named = {name if names.count(name) == 1 else f"{name} {at}": at for at, name in enumerate(names)}
    data = ReportData({}, (), (), runs={name: runs[at] for name, at in named.items()})
    data = replace(data, scores=tuple(curve_rows(data.runs)))
    return replace(data, scores=(*data.scores, *compare_curves(data)))


def test_the_pair_that_differs_is_named() -> None:
    runs = [swept(usual, 8), swept(usual, 12), swept(steeper, 20)]
    every, *pairs = compared(runs).rows.where(measure="coincidence")
    assert (every.metric, every.value, every.variant, every.against) == ("differ", 3.0, None, None)
    assert [(row.variant, row.against, row.metric) for row in pairs] == [
        ("m8", "m12", "coincide"),
        ("m8", "m20", "differ"),
        ("m12", "m20", "differ"),
    ]
    assert pairs[1].high < -MARGIN


def test_two_runs_of_one_model_are_not_compared() -> None:
    runs = [named(synthetic.run(8), name, weight_hash="one") for name in ("x", "y")]
    assert not compared([with_benchmark(run) for run in runs]).rows.where(measure="coincidence")


def test_curves_are_compared_at_the_points_of_the_coarser_one() -> None:
    coarse = {at: Estimate(at / 100, at / 100 - 0.03, at / 100 + 0.03) for at in (20.0, 60.0)}
    fine = {at: Estimate(at / 50, at / 50 - 0.04, at / 50 + 0.04) for at in (10.0, 30.0, 50.0, 70.0)}
    between = subtract_curves(coarse, fine)
    assert list(between) == [20.0, 60.0]
    assert [each.value for each in between.values()] == pytest.approx([-0.2, -0.6])
    assert [each.high - each.value for each in between.values()] == pytest.approx([0.05, 0.05])
    assert [each.value for each in subtract_curves(fine, coarse).values()] == pytest.approx([0.2, 0.6])


def pair(*bounds: tuple[float, float], lost: float = 0.5) -> Pair:
    at = {10.0 * place: Estimate((low + high) / 2, low, high) for place, (low, high) in enumerate(bounds, start=1)}
    return Pair(("a", "b"), at, lost)


@pytest.mark.parametrize(
    ("of", "comparisons", "verdict"),
    [
        (pair((-0.04, 0.04), (0.01, 0.04)), 1, "coincide"),
        (pair((-0.04, 0.04), (0.2, 0.3)), 1, "differ"),
        (pair((-0.04, 0.06), (-0.3, 0.3)), 1, "inconclusive"),
        (pair((0.01, 0.15), (-0.1, 0.1)), 1, "inconclusive"),  # above zero, and not above the margin
        (pair((0.055, 0.155), (-0.1, 0.1)), 1, "inconclusive"),  # above it at 95 %, not corrected over two
        (pair((0.055, 0.155)), 1, "differ"),
        (pair((-0.04, 0.04), (0.2, 0.36)), 1000, "inconclusive"),
        (pair((-0.01, 0.01), (-0.01, 0.01), lost=MIN_LOST - 0.001), 1, "inconclusive"),
        (pair((-0.01, 0.01), (-0.01, 0.01), lost=MIN_LOST), 1, "coincide"),
        (pair((-MARGIN, 0.0)), 1, "inconclusive"),
        (pair((0.001 - MARGIN, 0.0)), 1, "coincide"),
    ],
)
def test_the_verdict_on_a_pair_follows_its_intervals(of: Pair, comparisons: int, verdict: str) -> None:
    assert of.verdict(comparisons) == verdict


def test_only_runs_with_a_scale_are_compared() -> None:
    runs = [named(synthetic.run(depth, ("painters",), 0, ("text",)), f"m{depth}") for depth in (6, 8)]
    assert not compared(runs).rows.where(measure="coincidence")
    data = compared([with_benchmark(run) for run in runs])
    assert {(row.task, row.metric) for row in data.rows.where(measure="coincidence")} == {("mean", "coincide")}
    assert "Do the curves coincide? mean of the benchmarks:" in list(terminal_lines(COMPARISON, data))


def with_benchmark(data: ReportData) -> ReportData:
    scores = []
    for record in data.plans:
        if record.family == "painters":
            left = 1 - record.affected / data.depth
            bounds = (left, left - 0.01, left + 0.01)
            scores.append(Score("benchmark", "mean", *bounds, plan=record.plan, condition="normalized"))
    return replace(data, scores=(*data.scores, *{row.plan: row for row in scores}.values()))
