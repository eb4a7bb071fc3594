"""Weights are predictable: what the claim says of stacks whose weights were planted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

import pytest
from torch import Tensor

from layerwise.measure.weights.predictability import entry_levels
from layerwise.measure.weights.shuffled_layers import shuffled_orders
from layerwise.measure.weights.tensors import StackTensors, tensor_types, unit_sample
from layerwise.results.rows import Score
from measure.planted import autoregressive, noise, planted_stack
from report.claims.truths import POWER, WRONG, claim_of, concluded, share
from report.diagnosed import row

DEPTH = 9
WIDTH = 6
HELD_OUT = {("all", "all", "heldout_rows_r2"), ("all", "all", "heldout_layers_r2")}


def measured(weights: Tensor, seed: int) -> Iterator[Score]:
    """The rows of R2 of a stack of one tensor type, without a random twin."""
    tensors = StackTensors(planted_stack({"w": weights}))
    (kind,) = tensor_types(tensors, "predictability")
    orders = shuffled_orders(tensors.depth, seed)
    for level in entry_levels(tensors, None, [unit_sample(kind, WIDTH, seed)], orders, seed):
        yield from level.rows("predictability")


def world(rows: int, rho: float, depth: int = DEPTH) -> Callable[[int], Iterable[Score]]:
    """Layers of so many rows that correlate by `rho` from one to the next."""

    @cache
    def truth(run: int) -> tuple[Score, ...]:
        return tuple(measured(autoregressive(depth, rows, WIDTH, rho, seed=run), run))

    return truth


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("truth", "right"),
    [
        (world(120, 0.8, 16), "supported"),  # R2 is 2 rho^2 / (1 + rho^2) = 0.78
        (world(16, 0.0), "explained by the null"),  # 12 predictors fit 16 rows of noise
        (world(120, 0.0), "contradicted"),
    ],
)
def test_each_world_is_told(truth: Callable[[int], Iterable[Score]], right: str) -> None:
    assert share(concluded("predictability", truth, DEPTH), right) >= 1 - WRONG  # type: ignore[arg-type]


@pytest.mark.nightly
@pytest.mark.parametrize(("rows", "rho", "depth"), [(60, 0.66, 16), (60, 0.64, 9)])
def test_half_of_the_variance_is_not_supported(rows: int, rho: float, depth: int) -> None:
    """The least of both held-out R2 is one half at the mean, or a little less."""
    told = concluded("predictability", world(rows, rho, depth), depth)
    assert share(told, "supported") <= WRONG


def rows(inside: float, held: float, *, half: float = 0.02, null: float = -0.1, reach: float = 0.02) -> list[Score]:
    found = [row("predictability", "all", "in_sample_r2", inside, 0.01)]
    for metric in ("heldout_rows_r2", "heldout_layers_r2"):
        found.append(row("predictability", "all", metric, held, half))
        found.append(row("predictability", "all", f"{metric}@random_twin", null, reach))
    return found


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([], "not measured"),
        (rows(0.91, 0.88), "supported"),
        (rows(0.91, 0.88, null=0.87), "explained by the null"),  # the untrained twin is as predictable
        (rows(0.91, 0.88, null=0.75, reach=0.2), "not resolvable"),  # who knows
        (rows(0.91, -0.3), "explained by the null"),
        (rows(0.3, 0.05), "contradicted"),
        (rows(0.5, 0.05), "not resolvable"),
        (rows(0.91, 0.5, half=0.3), "not resolvable"),
    ],
)
def test_verdicts_by_their_intervals(scores: list[Score], expected: str) -> None:
    assert claim_of("predictability", scores, DEPTH).verdict == expected


@pytest.mark.nightly
def test_the_printed_resolution_is_found() -> None:
    """Stacks whose held-out R2 lies as far above one half, at the mean, as is printed that would be told."""
    truth = world(60, 0.73, 16)
    powers = [claim_of("predictability", truth(run), 16).power for run in range(100)]
    printed = sum(float(power.split("lies ")[1].split(" ")[0]) for power in powers) / len(powers)
    held = [
        min(row.value for row in truth(run) if (row.subject, row.task, row.metric) in HELD_OUT) for run in range(100)
    ]
    assert sum(held) / len(held) <= 0.51 + printed
    assert share(concluded("predictability", truth, 16), "supported") >= POWER


def test_noise_is_called_noise() -> None:
    assert claim_of("predictability", measured(noise(DEPTH, 20, WIDTH), 0), DEPTH).verdict == "explained by the null"
