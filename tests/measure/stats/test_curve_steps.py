"""The steps of curves against least squares."""

from __future__ import annotations

import numpy as np
import pytest

from layerwise.measure.contrasts.painters import FEWEST_STEPS, excess_weights, step_ends


@pytest.mark.parametrize("depth", [11, 24, 80])
def test_an_excess_is_that_beyond_the_best_parabola(depth: int) -> None:
    sizes = range(2 + (depth + 1) % 2, depth, 2)
    layers = np.arange(depth)
    curve = np.random.default_rng(depth).standard_normal(depth)
    start = sizes[0] - 2
    basis = np.stack([layers[list(sizes)] - start, (layers[list(sizes)] - start) ** 2], axis=1)
    factors = np.linalg.lstsq(basis, curve[list(sizes)], rcond=None)[0]
    beyond = np.concatenate([[0.0], curve[list(sizes)] - basis @ factors])
    assert excess_weights(sizes, start) @ curve[list(sizes)] == pytest.approx(np.diff(beyond))
    assert excess_weights(sizes, start) @ (basis @ [0.3, -0.01]) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("depth", [11, 12, 24, 32, 40, 80])
def test_a_model_has_five_to_ten_steps_of_a_tenth_of_its_depth(depth: int) -> None:
    ends = step_ends(range(2 + (depth + 1) % 2, depth, 2), depth)
    assert FEWEST_STEPS <= len(ends) <= 10
    assert ends[-1] == depth - 1
    assert min(np.diff(ends)) >= depth / 10
