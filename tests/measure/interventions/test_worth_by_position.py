"""What layers of planted models add, and their importance, at each position."""

import numpy as np
import pytest

from layerwise.measure.activations.by_position import UNITS, draw_rotations, importance_by_position
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.measure.interventions.survey import Survey
from layerwise.plan.edits import skip
from measure.planted_classifiers import Idle, Reader, classifier, splits, turning

SPLITS = splits(24)


def test_idle_layers_add_nothing_and_are_worth_nothing() -> None:
    tables = importance_by_position(classifier([Idle(), Reader(), Idle()]), SPLITS.test, SPLITS.collate)
    assert tables.worth.shape == tables.added.shape == (UNITS, 3, 3)
    assert np.abs(tables.worth[:, [0, 2]]).max() < 1e-5
    assert tables.added[:, [0, 2]].max() == 0.0
    assert tables.worth[:, 1].min() > 0.5
    assert tables.added[:, 1].min() > 0.1


def test_worth_is_the_loss_without_the_layer_at_its_position() -> None:
    stack = turning(3)
    tables = importance_by_position(stack, SPLITS.test, SPLITS.collate, seed=2)
    dealt = [index for unit in range(UNITS) for index in range(24)[unit::UNITS]]
    for unit in range(UNITS):
        part = [SPLITS.test[index] for index in dealt[3 * unit : 3 * unit + 3]]
        for plan in draw_rotations(3, f"2/worth/{unit}"):
            whole = evaluate(stack, plan, part, SPLITS.collate).mean_nll
            for position, layer in enumerate(plan.order()):
                without = evaluate(stack, skip(plan, layer), part, SPLITS.collate).mean_nll
                assert tables.worth[unit, layer, position] == pytest.approx(without - whole, rel=1e-3, abs=1e-5)


def test_a_survey_keeps_the_tables(tmp_path) -> None:  # type: ignore[no-untyped-def]
    tables = importance_by_position(turning(3), SPLITS.test, SPLITS.collate)
    Survey(3, {}, tables=tables).save(tmp_path / "survey.npz")
    kept = Survey.read(tmp_path / "survey.npz").tables
    assert np.array_equal(kept.worth, tables.worth)
    assert np.array_equal(kept.added, tables.added)
    Survey(3, {}).save(tmp_path / "bare.npz")
    assert Survey.read(tmp_path / "bare.npz").tables is None
