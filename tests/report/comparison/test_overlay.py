"""What is drawn over one another is what each run shows by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.plan import Plan
from layerwise.report import Compared, overlaid
from layerwise.report.comparison.overlay import (
    LEAVE_OUT,
    PANELS,
    SKIPPED,
    SWAP,
    CurveMeasure,
    at_half,
    curve_lines,
    curve_measures,
    layer_lines,
    strategies,
)
from layerwise.report.comparison.tables import half_rows
from layerwise.report.derived.curves import curves
from layerwise.report.evidence import Evidence
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from report import synthetic
from report.comparison.several import DEPTHS, diagnoses, named, sweeps


def test_every_point_of_a_curve_is_the_point_of_the_report_of_its_run() -> None:
    compared = Compared.of(sweeps())
    loss, *_ = curve_measures(compared)
    assert loss == CurveMeasure("effect", "all", "delta_nll")
    assert {strategy for _, strategy in strategies(compared)} == set(synthetic.HARM)
    for strategy in synthetic.HARM:
        lines = curve_lines(compared, "painters", strategy, loss)
        assert [line.name for line in lines] == list(DEPTHS)
        for line, run in zip(lines, compared.runs, strict=True):
            own = Rows(curves(run.evidence.run)).where(part="painters", task="all", condition=strategy, seed=None)
            shown = [
                (round(x * run.evidence.depth / 100), row.value, row.low, row.high) for x, row in line.rows.items()
            ]
            assert shown == [(row.amount, row.value, row.low, row.high) for row in own]
            assert all(0 < x <= 100 for x in line.rows)


@pytest.mark.parametrize("panel", PANELS)
def test_every_layer_has_the_effect_of_its_own_plan(panel: str) -> None:
    compared = Compared.of(sweeps())
    for line, run in zip(layer_lines(compared, panel, "all"), compared.runs, strict=True):
        last = run.evidence.depth - 1
        for x, row in line.rows.items():
            layer = x * last / 100 - (0.5 if panel == SWAP else 0.0)
            index = round(layer)
            assert layer == pytest.approx(index)
            order = [each for each in range(last + 1) if panel == SWAP or each != index]
            if panel == SWAP:
                order[index : index + 2] = [index + 1, index]
            plan = next(text for text, found in run.evidence.schedules.items() if found.order() == tuple(order))
            assert replace(row, layer=None, other=None, condition=None) == run.evidence.effect(plan, "all")
        assert len(line.rows) == last + (panel == LEAVE_OUT)


def test_the_layers_of_a_diagnosis_are_those_of_its_ablation() -> None:
    compared = Compared.of(diagnoses())
    for line, run in zip(layer_lines(compared, LEAVE_OUT, "all"), compared.runs, strict=True):
        assert list(line.rows.values()) == list(run.evidence.rows.where(**SKIPPED, task="all", layer=PRESENT))
        assert (min(line.rows), max(line.rows)) == (0.0, 100.0)


def test_the_rows_of_a_comparison_are_those_of_its_figures() -> None:
    compared = Compared.of(sweeps("small", "large"))
    rows = list(overlaid(compared))
    skip = [
        row
        for row in rows
        if (row.measure, row.strategy, row.task, row.metric) == ("curve", "skip", "all", "delta_nll")
    ]
    lines = curve_lines(compared, "painters", "skip", curve_measures(compared)[0])
    assert [(row.model, row.percent, row.value) for row in skip] == [
        (line.name, x, score.value) for line in lines for x, score in line.rows.items()
    ]
    assert {row.model for row in rows if row.measure == "layer"} == {"small", "large"}


def test_the_whole_text_of_a_run_with_one_task_goes_by_its_name() -> None:
    lone = synthetic.run(8, tasks=("text",))
    lone = replace(lone, scores=tuple(score for score in lone.scores if score.task != "all"))
    compared = Compared.of([("runs/lone", named(lone, "lone")), *sweeps("large")])
    lines = curve_lines(compared, "painters", "skip", curve_measures(compared)[0])
    assert [line.name for line in lines] == ["lone", "large"]


def test_benchmarks_are_curves_on_their_normalised_scale() -> None:
    (folder, data), other = sweeps("small", "large")
    skips = [record for record in data.plans if record.strategy == "skip" and record.family == "painters"]
    scores = [
        Score.of("benchmark", "acc", 1 - record.affected / 8, task="arc_easy", plan=record.plan, condition="normalised")
        for record in skips
    ]
    raw = [Score.of("benchmark", "acc", 0.5, task="arc_easy", plan=str(Plan.identity(8)))]
    compared = Compared.of([(folder, replace(data, scores=(*data.scores, *raw, *scores))), other])
    measure = curve_measures(compared)[-1]
    assert (measure.task, measure.metric, measure.is_share) == ("arc_easy", "acc", True)
    (line,) = curve_lines(compared, "painters", "skip", measure)
    assert {x: row.value for x, row in line.rows.items()} == pytest.approx(
        {100 * record.affected / 8: 1 - record.affected / 8 for record in skips}
    )


def test_the_numbers_at_half_are_those_nearest_to_half() -> None:
    compared = Compared.of(sweeps("small", "medium"))
    loss = curve_measures(compared)[0]
    (line, _) = curve_lines(compared, "painters", "reverse", loss)
    x, score = at_half(line)
    assert x == min(line.rows, key=lambda each: abs(each - 50))
    (row,) = [row for row in half_rows(compared, loss).body if row[0] == "reverse"]
    assert row[1].endswith(f"at {x:.0f} %")
    assert Evidence.of(sweeps("small")[0][1]).depth == 8
    assert score.low is not None
