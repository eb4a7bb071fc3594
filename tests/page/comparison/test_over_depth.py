"""Curves, layers and zones of several runs over the depth."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import pytest

from layerwise.page import ReportData
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.studies.compare.over_depth import name_quantity, read_at_half
from layerwise.studies.compare.page import list_partitions
from layerwise.studies.compare.side_by_side import compare_side_by_side
from page import synthetic
from page.comparison.several import DEPTHS, diagnoses, named, of_rows, sweeps

ORDERS = {
    "skip": lambda straight, layer: straight[:layer] + straight[layer + 1 :],
    "swap": lambda straight, layer: (*straight[:layer], layer + 1, layer, *straight[layer + 2 :]),
}


def plan_of(run: ReportData, family: str, **columns: object) -> list[str]:
    return [r.plan for r in run.plans if r.family == family and all(getattr(r, k) == v for k, v in columns.items())]


def test_points_of_a_curve_are_effects_of_its_plans() -> None:
    data = compare_side_by_side(sweeps())
    rows = data.rows.where(measure="curve", task="all", metric="delta_nll")
    assert set(rows.axis("strategy")) == set(synthetic.HARM)
    assert rows.axis("variant") == tuple(DEPTHS)
    for row in rows.where(strategy="skip"):
        run = data.runs[str(row.variant)]
        affected = round((row.percent or 0.0) * run.depth / 100)
        (plan,) = plan_of(run, "painters", strategy="skip", affected=affected)
        own = run.effect(plan, "all")
        assert (row.value, row.low, row.high, row.percent) == (own.value, own.low, own.high, 100 * affected / run.depth)


@pytest.mark.parametrize("strategy", ORDERS)
def test_layers_have_the_effects_of_their_own_plans(strategy: str) -> None:
    data = compare_side_by_side(sweeps())
    for name, run in data.runs.items():
        rows = data.rows.where(measure="layer", task="all", strategy=strategy, variant=name)
        assert len(rows) == run.depth - (strategy == "swap")
        for row in rows:
            layer = (row.percent or 0.0) * (run.depth - 1) / 100 - (0.5 if strategy == "swap" else 0.0)
            assert layer == pytest.approx(round(layer))
            plan = Plan.of(ORDERS[strategy](tuple(range(run.depth)), round(layer)))
            own = run.effect(str(plan), "all")
            assert (row.value, row.low, row.high, row.p_adjusted) == (own.value, own.low, own.high, own.p_adjusted)


def test_layers_of_a_diagnosis_come_from_its_ablation() -> None:
    data = compare_side_by_side(diagnoses())
    for name, run in data.runs.items():
        rows = data.rows.where(measure="layer", task="all", strategy="skip", variant=name)
        ablated = run.rows.where(measure="ablation", metric="skip", task="all", part=None, against=None, layer=PRESENT)
        assert [row.value for row in rows] == [row.value for row in ablated]
        assert (rows[0].percent, rows[-1].percent) == (0.0, 100.0)


def test_the_overall_loss_of_one_task_has_the_name_of_the_task() -> None:
    lone = synthetic.run(8, tasks=("text",))
    lone = replace(lone, scores=tuple(score for score in lone.scores if score.task != "all"))
    data = compare_side_by_side([("runs/lone", named(lone, "lone")), *sweeps("large")])
    assert data.rows.where(measure=("curve", "layer"), task="all").axis("variant") == ("lone", "large")


def test_curves_of_benchmarks_are_normalized() -> None:
    (folder, data), other = sweeps("small", "large")
    skips = [record for record in data.plans if record.strategy == "skip" and record.family == "painters"]
    scores = [
        Score("benchmark", "acc", 1 - record.affected / 8, task="arc_easy", plan=record.plan, condition="normalized")
        for record in skips
    ]
    raw = [Score("benchmark", "acc", 0.5, task="arc_easy", plan=str(Plan.identity(8)))]
    compared = compare_side_by_side([(folder, replace(data, scores=(*data.scores, *raw, *scores))), other])
    rows = compared.rows.where(measure="score_curve", task="arc_easy")
    assert {name_quantity(row) for row in rows} == {"arc_easy, acc (normalized)"}
    assert {row.percent: row.value for row in rows} == pytest.approx(
        {100 * record.affected / 8: 1 - record.affected / 8 for record in skips}
    )


def test_half_depth_is_the_nearest_measured_size() -> None:
    data = compare_side_by_side(sweeps("small", "medium"))
    rows = data.rows.where(measure="curve", task="all", metric="delta_nll")
    half = Rows(read_at_half(data))
    assert len(half) == 2 * len(synthetic.HARM)
    for row in half:
        own = rows.where(variant=row.variant, strategy=row.strategy)
        assert abs((row.percent or 0.0) - 50) == min(abs((each.percent or 0.0) - 50) for each in own)
        assert row in own


DEPTH = 12


def rows_of(sizes: Sequence[int]) -> Iterator[Score]:
    plan = str(Plan.identity(DEPTH))
    zone_of = [zone for zone, size in enumerate(sizes) for _ in range(size)]
    for i in range(DEPTH):
        yield Score("plan_states", "variance", 1.0, 0.9, 1.1, plan=plan, state=i + 1)
        for j in range(i + 1, DEPTH):
            alike = 0.8 if zone_of[i] == zone_of[j] else 0.3
            yield Score("plan_states", "cosine", alike, plan=plan, state=i + 1, to_state=j + 1)
    yield Score("zones", "zones", float(len(sizes)), plan=plan)
    yield Score("zones", "p", 0.4, plan=plan)
    for border in list(accumulate(sizes))[:-1]:
        yield Score("zones", "border", border + 1.0, plan=plan, state=border + 1)
        yield Score("zones", "contrast", 0.5, 0.4, 0.6, plan=plan, state=border + 1)


def compared_of(*sizes: Sequence[int]) -> ReportData:
    return of_rows(*(list(rows_of(each)) for each in sizes), depth=DEPTH)


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ((3, 6, 3), (3, 6, 3)),
        ((2, 9, 1), (2, 9, 1)),
        ((12,), (0, 12, 0)),
        ((4, 4, 4), (0, 4, 8)),
        ((2, 2, 8), (4, 8, 0)),
    ],
)
def test_layers_are_counted_around_the_longest_zone(sizes: tuple[int, ...], counts: tuple[int, int, int]) -> None:
    (own, *_) = list_partitions(compared_of(sizes, (12,))).values()
    assert (own.beginning, own.middle, own.ending) == counts
