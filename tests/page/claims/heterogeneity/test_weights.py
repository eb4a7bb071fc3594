"""The findings on oscillating and predictable weights, on simulated stacks."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

from torch import Tensor

from layerwise.measure.weights.deltas import deltas
from layerwise.measure.weights.predictability import rows_for_samples
from layerwise.measure.weights.tensors import StackTensors, draw_orders, find_tensor_types, sample_units
from layerwise.results.rows import Score
from measure.planted import alternating, autoregressive, noise, planted_stack
from page.claims.truths import CONTRADICTED, NULL, SUPPORTED, judge_rows, make_simulated_test

DEPTH, WIDTH = 12, 6
HELD_OUT = ("heldout_rows_r2", "heldout_layers_r2")


def rows(weights: Tensor, run: int) -> list[Score]:
    return deltas(planted_stack({"w": weights}), seed=run)


def unequal(run: int, size: int = 40) -> list[Score]:
    weights = noise(DEPTH, size, size, run)
    weights[0] *= 3
    return rows(weights, run)


def alternate(run: int, amplitude: float, size: int = 40) -> list[Score]:
    return rows(alternating(DEPTH, size, size, amplitude, seed=2 * run), run)


def measured(weights: Tensor, seed: int) -> Iterator[Score]:
    tensors = StackTensors(planted_stack({"w": weights}))
    (kind,) = find_tensor_types(tensors, "predictability")
    orders = draw_orders(tensors.depth, seed)
    return rows_for_samples(tensors, None, [sample_units(kind, WIDTH, seed)], orders, seed)


def stacked(rows: int, rho: float, depth: int = 9) -> Callable[[int], Iterable[Score]]:
    @cache
    def truth(run: int) -> tuple[Score, ...]:
        return tuple(measured(autoregressive(depth, rows, WIDTH, rho, seed=run), run))

    return truth


test_a_planted_oscillation_is_found_in_most_runs = make_simulated_test(
    {
        "oscillation": {
            SUPPORTED: (partial(alternate, amplitude=0.5),),
            CONTRADICTED: (lambda run: rows(autoregressive(DEPTH, 40, 40, 0.7, seed=run), run),),
            NULL: (lambda run: rows(noise(DEPTH, 40, 40, run), run), unequal),
        },
    },
    nightly=True,
)
test_a_planted_prediction_is_found_in_most_runs = make_simulated_test(
    {
        "predictability": {
            SUPPORTED: (stacked(120, 0.8, 16),),  # R2 is 2 rho^2 / (1 + rho^2) = 0.78
            NULL: (stacked(16, 0.0),),  # 12 predictors fit 16 rows of noise
            CONTRADICTED: (stacked(120, 0.0),),
        }
    },
    least=0.95,
    nightly=True,
)


def test_few_layers_are_inconclusive_and_noise_is_the_null() -> None:
    assert judge_rows("oscillation", rows(noise(4, 40, 40), 0), 4).verdict == "inconclusive"
    assert judge_rows("predictability", measured(noise(9, 20, WIDTH), 0), 9).verdict == NULL
