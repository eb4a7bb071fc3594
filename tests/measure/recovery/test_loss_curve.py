import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.measure.recovery.loss_curve import (
    LossCurve,
    LossCurveKey,
    curve_rows,
    flat_curve,
    read_curves,
    recovery_rows,
    recovery_time,
)
from layerwise.results.selection import Rows

STEPS = (0, 4, 8, 12)
UNDAMAGED = LossCurve(STEPS, (3.0, 2.9, 2.8, 2.8))


def damaged(*gaps: float) -> LossCurve:
    return LossCurve(STEPS, tuple(own + gap for own, gap in zip(UNDAMAGED.nll, gaps, strict=False)))


def test_diverged_run_is_censored() -> None:
    found = recovery_time(damaged(0.5, 0.01), UNDAMAGED, 0.05)
    assert (found.steps, found.censored, found.area) == (12, True, None)
    assert recovery_time(LossCurve(STEPS, ()), UNDAMAGED, 0.05).initial_damage is None


def test_control_is_compared_with_the_initial_model() -> None:
    found = recovery_time(UNDAMAGED, flat_curve(UNDAMAGED), 0.05)
    assert found.steps == 0
    assert found.area == pytest.approx(-4 * (0.05 + 0.15 + 0.2))
    harmed = LossCurve(STEPS, (3.0, 3.2, 3.2, 3.2))
    assert recovery_time(harmed, flat_curve(harmed), 0.05).censored, "a rate that harms the control shows"


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8), st.floats(0, 0.5))
def test_recovery_is_the_first_lasting_return(gaps: list[float], tolerance: float) -> None:
    steps = tuple(range(0, 3 * len(gaps), 3))
    found = recovery_time(LossCurve(steps, tuple(gaps)), LossCurve(steps, (0.0,) * len(gaps)), tolerance)
    assert found.initial_damage == gaps[0]
    assert found.censored == (gaps[-1] > tolerance)
    if found.censored:
        assert found.steps == steps[-1]
    else:
        assert all(gap <= tolerance for step, gap in zip(steps, gaps, strict=True) if step >= found.steps)
        assert found.steps == 0 or gaps[steps.index(found.steps) - 1] > tolerance


def test_rows_of_a_layer() -> None:
    courses = [recovery_time(damaged(0.5, 0.4, 0.01, gap), UNDAMAGED, 0.05) for gap in (0.01, 0.02, 0.3)]
    controls = [recovery_time(UNDAMAGED, flat_curve(UNDAMAGED), 0.05)] * 3
    made = Rows(recovery_rows({"layer": 3}, courses, controls, controls[:2] + courses[2:], 12, 9, 99))
    rows = made.where(against=None).along("metric")
    assert set(rows) == {"initial_damage", "steps", "area", "censored", "steps_to_original", "censored_original"}
    assert [rows[f"{name}_original"].value for name in ("steps_to", "censored")] == pytest.approx([4.0, 1 / 3])
    compared = made.where(against="undamaged").along("metric")
    assert set(compared) == {"steps", "area"}
    assert rows["steps"].value == pytest.approx((8 + 8 + 12) / 3)
    assert rows["steps"].high == 12.0, "no interval reaches beyond the cap"
    assert rows["censored"].value == pytest.approx(1 / 3)
    low, high = rows["censored"].low, rows["censored"].high
    assert 0 < low < 1 / 3 < high < 1
    assert (compared["steps"].low, compared["steps"].high) == (None, None), "equal seeds have no interval"
    assert (rows["area"].documents, rows["area"].tokens) == (9, 99)


@pytest.mark.parametrize("trajectory", [UNDAMAGED, LossCurve(STEPS, (3.0, 2.9)), LossCurve(STEPS, ())])
def test_runs_can_be_read_from_rows(trajectory: LossCurve) -> None:
    run = LossCurveKey(3, "noise_50", "layer", 2)
    rows = curve_rows(run, trajectory)
    assert read_curves(rows, STEPS) == {run: trajectory}
    if trajectory.nll:
        assert read_curves(rows, (0, 6, 12)) == {}, "runs of another recipe are no runs of this one"
    if rows:
        assert read_curves(rows[:-1], STEPS) != {run: trajectory}, "half a run is none"
