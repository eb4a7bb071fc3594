"""Whether curves coincide, on planted ones: equal curves of models of several depths, and curves that differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from layerwise.measure.stats.effects import effects
from layerwise.plan import Plan
from layerwise.report import Compared, ReportData
from layerwise.report.claims.claim import Span
from layerwise.report.comparison.coincidence import (
    LEAST_LOST,
    MARGIN,
    Coincidence,
    CurveCoincidence,
    Pair,
    coincidences,
    differences,
)
from layerwise.report.comparison.tables import coincidence_rows, comparison_lines
from layerwise.results.rows import UNIFORM, Loss, PlanRecord, Score
from report import synthetic
from report.comparison.several import named
from report.synthetic import plan_records
from tier import by_tier

RUNS = by_tier(fast=2, full=100)
Curve = Callable[[float], float]
"""From the share of the depth that is skipped to the share of the scale that is lost."""

VOCABULARY = 400
MUCH = {"documents": 800, "shape": 20.0}
SOME = {"documents": 40, "shape": 2.0}


def usual(depth: float) -> float:
    return 0.8 * depth**1.3


def steeper(depth: float) -> float:
    return usual(depth) + 0.2 * math.sin(math.pi * depth)


def shifted(depth: float) -> float:
    return usual(depth) + MARGIN


def swept(curve: Curve, depth: int, seed: int, *, documents: int, shape: float) -> ReportData:
    """A sweep of skips whose losses follow the curve, document by document, through the real bootstrap."""
    draw = np.random.default_rng(seed)
    trained = 1.0 + 0.05 * depth
    scale = math.log(VOCABULARY) - trained
    whole = str(Plan.identity(depth))
    skips = {r.plan: r for r in plan_records(depth, ("painters",)) if r.strategy == "skip" and r.affected > 1}
    tokens = np.round(draw.lognormal(4.0, 0.3, documents)) + 2
    factor = draw.gamma(shape, 1 / shape, documents)
    losses = []
    for plan, lost in {whole: 0.0, **{plan: curve(r.affected / depth) for plan, r in skips.items()}}.items():
        nll = tokens * (trained * (0.5 + 0.5 * factor) + scale * lost * factor)
        losses += [
            Loss(plan, "text", f"{number:03}", 0, float(each), int(count), 0)
            for number, (each, count) in enumerate(zip(nll, tokens, strict=True))
        ]
    uniform = Score("run", "model", "all", UNIFORM, math.log(VOCABULARY))
    manifest = {"depth": depth, "model": f"m{depth}", "weight_hash": f"w{seed}"}
    return ReportData(manifest, tuple(skips.values()), (uniform, *effects(losses, whole, seed=seed, resamples=400)))


def found(curves: Sequence[tuple[Curve, int]], run: int, **settings: float) -> CurveCoincidence:
    folders = [
        (f"runs/{number}", swept(curve, depth, 100 * run + number, **settings))  # type: ignore[arg-type]
        for number, (curve, depth) in enumerate(curves)
    ]
    (of_skip,) = coincidences(Compared.of(folders))
    return of_skip


WORLDS: dict[str, tuple[Coincidence, tuple[tuple[Curve, int], ...]]] = {
    "two equal": ("coincide", ((usual, 8), (usual, 12))),
    "three equal": ("coincide", ((usual, 8), (usual, 12), (usual, 20))),
    "two that differ": ("differ", ((usual, 8), (steeper, 12))),
    "one of three differs": ("differ", ((usual, 8), (usual, 12), (steeper, 20))),
}


@pytest.mark.simulated
@pytest.mark.parametrize("world", WORLDS)
def test_what_was_planted_is_found_in_95_of_100(world: str) -> None:
    right, curves = WORLDS[world]
    counts = Counter(found(curves, run, **MUCH).verdict for run in range(RUNS))
    assert counts[right] >= 0.95 * RUNS, counts


@pytest.mark.slow
@pytest.mark.parametrize("world", [*WORLDS, "at the margin"])
def test_little_text_is_rarely_wrong(world: str) -> None:
    right, curves = WORLDS.get(world, (None, ((usual, 12), (shifted, 12))))
    runs = by_tier(fast=20, full=200)
    counts = Counter(found(curves, run, **SOME).verdict for run in range(runs))
    wrong = runs - counts[right] - counts["not resolvable"]
    assert wrong <= 0.05 * runs, counts


def test_the_pair_that_differs_is_named() -> None:
    of_three = found(WORLDS["one of three differs"][1], 0, **MUCH)
    verdicts = {pair.models: verdict for pair, verdict in of_three.pairs}
    assert verdicts == {("m8", "m12"): "coincide", ("m8", "m20"): "differ", ("m12", "m20"): "differ"}
    rows = coincidence_rows([of_three]).body
    assert rows[0][:3] == ("skip", "all", "differ")
    assert [row[1] for row in rows[1:]] == ["m8 – m12", "m8 – m20", "m12 – m20"]
    assert rows[2][3].startswith("−0.")


def test_two_runs_of_one_model_are_no_pair() -> None:
    runs = [(f"runs/{name}", named(synthetic.run(8), name, weight_hash="one", seed=name)) for name in ("x", "y")]
    scored = [(folder, with_benchmark(data)) for folder, data in runs]
    assert coincidences(Compared.of(scored)) == ()


def test_curves_are_compared_at_the_points_of_the_coarser_one() -> None:
    coarse = {percent: Span(percent / 100, percent / 100 - 0.03, percent / 100 + 0.03) for percent in (20.0, 60.0)}
    fine = {
        percent: Span(percent / 50, percent / 50 - 0.04, percent / 50 + 0.04) for percent in (10.0, 30.0, 50.0, 70.0)
    }
    between = differences(coarse, fine)
    assert list(between) == [20.0, 60.0]
    assert [each.value for each in between.values()] == pytest.approx([-0.2, -0.6])
    assert [each.high - each.value for each in between.values()] == pytest.approx([0.05, 0.05])
    assert [each.value for each in differences(fine, coarse).values()] == pytest.approx([0.2, 0.6])


def pair(*bounds: tuple[float, float], lost: float = 0.5) -> Pair:
    at = {10.0 * place: Span((low + high) / 2, low, high) for place, (low, high) in enumerate(bounds, start=1)}
    return Pair(("a", "b"), at, lost)


def test_the_verdict_on_a_pair_is_read_off_its_intervals() -> None:
    assert pair((-0.04, 0.04), (0.01, 0.04)).verdict() == "coincide"
    assert pair((-0.04, 0.04), (0.2, 0.3)).verdict() == "differ"
    assert pair((-0.04, 0.06), (-0.3, 0.3)).verdict() == "not resolvable"
    # Above zero, and not above the margin; above it at 95 %, and not corrected over two percentages.
    assert pair((0.01, 0.15), (-0.1, 0.1)).verdict() == "not resolvable"
    assert pair((0.055, 0.155), (-0.1, 0.1)).verdict() == "not resolvable"
    assert pair((0.055, 0.155)).verdict() == "differ"
    assert pair((-0.04, 0.04), (0.2, 0.36)).verdict(1000) == "not resolvable"
    assert pair((-0.01, 0.01), (-0.01, 0.01), lost=LEAST_LOST / 2).verdict() == "not resolvable"


def test_runs_without_a_scale_are_not_compared_and_normalised_benchmarks_have_one() -> None:
    runs = [
        (f"runs/{depth}", named(synthetic.run(depth, ("painters",), 0, ("text",)), f"m{depth}")) for depth in (6, 8)
    ]
    assert coincidences(Compared.of(runs)) == ()
    scored = [(folder, with_benchmark(data)) for folder, data in runs]
    compared = Compared.of(scored)
    by_mean = coincidences(compared)
    assert {each.measure.metric for each in by_mean} == {"mean"}
    assert {each.verdict for each in by_mean} == {"coincide"}
    assert "Do the curves coincide? mean of the benchmarks" in "\n".join(comparison_lines(compared, ()))


def with_benchmark(data: ReportData) -> ReportData:
    def score(record: PlanRecord) -> Score:
        left = 1 - record.affected / int(str(data.manifest["depth"]))
        return Score.of("benchmark", "mean", left, left - 0.01, left + 0.01, plan=record.plan, condition="normalised")

    kept = {record.plan: score(record) for record in data.plans if record.family == "painters"}
    return ReportData(data.manifest, data.plans, (*data.scores, *kept.values()))
