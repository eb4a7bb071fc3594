import numpy as np
import pytest

from layerwise.measure.language.task_summary import (
    ChanceScale,
    chance_scale,
    mean_over_tasks,
    median_over_tasks,
    normalized_rows,
    summary_rows,
)
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ALL


def _row(task: str, value: float, reach: float | None = 0.05, metric: str = "accuracy") -> Score:
    low, high = (None, None) if reach is None else (value - reach, value + reach)
    model = {"variant": "bert", "seed": 0, "tuning_seed": 0, "plan": "0 3"}
    return Score("glue", metric, value, low, high, task=task, documents=100, **model)


def test_model_at_chance_has_no_normalized_score() -> None:
    assert chance_scale(_row("rte", 0.54), _row("rte", 0.5)) is None
    assert chance_scale(_row("rte", 0.54, None), _row("rte", 0.5)) is not None


def test_mean_and_median_over_tasks_match_their_definition() -> None:
    scores = {task: _row(task, value) for task, value in (("cola", 0.2), ("rte", 0.6), ("sst2", 0.7))}
    chances = {task: _row(task, value, None) for task, value in (("cola", 0.0), ("rte", 0.5), ("sst2", 0.5))}
    mean, chance = summary_rows(scores, chances)
    assert (mean.task, mean.metric, mean.value, mean.documents) == (ALL, "mean", pytest.approx(0.5), 300)
    assert mean.high == pytest.approx(0.5 + 0.05 / 3**0.5)
    assert (chance.metric, chance.value, chance.low) == ("mean", pytest.approx(1 / 3), None)
    scales = {"cola": ChanceScale(0.0, 0.4), "rte": ChanceScale(0.5, 0.7), "sst2": ChanceScale(0.5, 0.9)}
    *own, over, median = normalized_rows(scores, scales)
    assert [row.value for row in own] == pytest.approx([0.5, 0.5, 0.5])
    assert (over.metric, over.condition, over.value) == ("mean", "normalized", pytest.approx(0.5))
    assert (median.metric, median.condition, median.value) == ("median", "normalized", pytest.approx(0.5))


def test_single_task_has_no_mean() -> None:
    assert summary_rows({"rte": _row("rte", 0.6)}, {"rte": _row("rte", 0.5)}) == []
    rows = normalized_rows({"rte": _row("rte", 0.6)}, {"rte": ChanceScale(0.5, 0.7)})
    assert [(row.metric, row.condition) for row in rows] == [("accuracy", "normalized")]
    assert normalized_rows({"rte": _row("rte", 0.6)}, {}) == []


def test_task_without_interval_removes_the_overall_interval() -> None:
    rows = [_row("rte", 0.6), _row("sst2", 0.8, None)]
    for found in (mean_over_tasks(rows, "mean"), median_over_tasks(rows, "median")):
        assert (found.value, found.low, found.high) == (pytest.approx(0.7), None, None)


def test_intervals_of_means_and_medians_have_their_coverage() -> None:
    truths, error = np.array([0.2, 0.5, 0.55, 0.6, 0.9]), 0.04
    random = np.random.default_rng(0)
    covered = {"mean": 0, "median": 0}
    draws = 300
    for _ in range(draws):
        rows = [_row(str(at), value, 1.96 * error) for at, value in enumerate(random.normal(truths, error))]
        for name, over, truth in (
            ("mean", mean_over_tasks, truths.mean()),
            ("median", median_over_tasks, np.median(truths)),
        ):
            result = over(rows, name)
            assert result.low is not None
            assert result.high is not None
            covered[name] += result.low <= truth <= result.high
    assert all(0.9 <= count / draws <= 0.99 for count in covered.values())
