"""What is drawn over percent of the depth is what each run shows by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.plan import Plan
from layerwise.report import ReportData, side_by_side
from layerwise.report.derived.over_depth import at_half, quantity_name
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from report import synthetic
from report.comparison.several import DEPTHS, diagnoses, named, sweeps

ORDERS = {
    "skip": lambda straight, layer: straight[:layer] + straight[layer + 1 :],
    "swap": lambda straight, layer: (*straight[:layer], layer + 1, layer, *straight[layer + 2 :]),
}


def plan_of(run: ReportData, family: str, **columns: object) -> list[str]:
    return [r.plan for r in run.plans if r.family == family and all(getattr(r, k) == v for k, v in columns.items())]


def test_every_point_of_a_curve_is_the_effect_of_its_plans() -> None:
    data = side_by_side(sweeps())
    rows = data.rows.where(measure="curve", task="all", metric="delta_nll")
    assert set(rows.axis("condition")) == set(synthetic.HARM)
    assert rows.axis("arm") == tuple(DEPTHS)
    for row in rows.where(condition="skip"):
        run = data.runs[str(row.arm)]
        affected = round((row.amount or 0.0) * run.depth / 100)
        (plan,) = plan_of(run, "painters", strategy="skip", affected=affected)
        own = run.effect(plan, "all")
        assert own is not None
        assert (row.value, row.low, row.high, row.amount) == (own.value, own.low, own.high, 100 * affected / run.depth)


@pytest.mark.parametrize("strategy", ORDERS)
def test_every_layer_has_the_effect_of_its_own_plan(strategy: str) -> None:
    data = side_by_side(sweeps())
    for name, run in data.runs.items():
        rows = data.rows.where(measure="layer", task="all", condition=strategy, arm=name)
        assert len(rows) == run.depth - (strategy == "swap")
        for row in rows:
            layer = (row.amount or 0.0) * (run.depth - 1) / 100 - (0.5 if strategy == "swap" else 0.0)
            assert layer == pytest.approx(round(layer))
            plan = Plan.of(ORDERS[strategy](tuple(range(run.depth)), round(layer)))
            own = run.effect(str(plan), "all")
            assert own is not None
            assert (row.value, row.low, row.high, row.p_adjusted) == (own.value, own.low, own.high, own.p_adjusted)


def test_the_layers_of_a_diagnosis_are_those_of_its_ablation() -> None:
    data = side_by_side(diagnoses())
    for name, run in data.runs.items():
        rows = data.rows.where(measure="layer", task="all", condition="skip", arm=name)
        ablated = run.rows.where(measure="ablation", metric="skip", task="all", part=None, against=None, layer=PRESENT)
        assert [row.value for row in rows] == [row.value for row in ablated]
        assert (rows[0].amount, rows[-1].amount) == (0.0, 100.0)


def test_the_whole_text_of_a_run_with_one_task_goes_by_its_name() -> None:
    lone = synthetic.run(8, tasks=("text",))
    lone = replace(lone, scores=tuple(score for score in lone.scores if score.task != "all"))
    data = side_by_side([("runs/lone", named(lone, "lone")), *sweeps("large")])
    assert data.rows.where(measure=("curve", "layer"), task="all").axis("arm") == ("lone", "large")


def test_benchmarks_are_curves_on_their_normalised_scale() -> None:
    (folder, data), other = sweeps("small", "large")
    skips = [record for record in data.plans if record.strategy == "skip" and record.family == "painters"]
    scores = [
        Score.of("benchmark", "acc", 1 - record.affected / 8, task="arc_easy", plan=record.plan, condition="normalised")
        for record in skips
    ]
    raw = [Score.of("benchmark", "acc", 0.5, task="arc_easy", plan=str(Plan.identity(8)))]
    compared = side_by_side([(folder, replace(data, scores=(*data.scores, *raw, *scores))), other])
    rows = compared.rows.where(measure="score_curve", task="arc_easy")
    assert {quantity_name(row) for row in rows} == {"arc_easy, acc (normalised)"}
    assert {row.amount: row.value for row in rows} == pytest.approx(
        {100 * record.affected / 8: 1 - record.affected / 8 for record in skips}
    )


def test_the_numbers_at_half_are_those_nearest_to_half_of_the_first_quantity() -> None:
    data = side_by_side(sweeps("small", "medium"))
    rows = data.rows.where(measure="curve", task="all", metric="delta_nll")
    half = Rows(at_half(data))
    assert len(half) == 2 * len(synthetic.HARM)
    for row in half:
        own = rows.where(arm=row.arm, condition=row.condition)
        assert abs((row.amount or 0.0) - 50) == min(abs((each.amount or 0.0) - 50) for each in own)
        assert row in own
