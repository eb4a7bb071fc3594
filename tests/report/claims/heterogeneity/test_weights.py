"""Oscillation of weights, over many simulated stacks: independent, of unequal norms, smooth, alternating."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from layerwise.measure.weights.deltas import deltas
from layerwise.results.rows import Score
from measure.planted import alternating, autoregressive, noise, planted_stack
from report.claims.truths import POWER, WRONG, Truth, claim_of, concluded, ends_right, share

DEPTH = 12


def rows(weights: Tensor, run: int) -> list[Score]:
    return deltas(planted_stack({"w": weights}), seed=run)


def unequal(run: int, size: int = 40) -> list[Score]:
    """Independent layers of which the first has three times the norm: the raw correlation is not -1/2."""
    weights = noise(DEPTH, size, size, run)
    weights[0] *= 3
    return rows(weights, run)


def alternate(run: int, amplitude: float, size: int = 40) -> list[Score]:
    return rows(alternating(DEPTH, size, size, amplitude, seed=2 * run), run)


TRUTHS: dict[str, tuple[Truth, set[str], str | None]] = {
    "true": (partial(alternate, amplitude=0.5), {"contradicted", "explained by the null"}, "supported"),
    "false": (
        lambda run: rows(autoregressive(DEPTH, 40, 40, 0.7, seed=run), run),
        {"supported", "explained by the null"},
        "contradicted",
    ),
    "null": (
        lambda run: rows(noise(DEPTH, 40, 40, run), run), {"supported", "contradicted"}, "explained by the null",
    ),
    "null, unequal norms": (unequal, {"supported", "contradicted"}, "explained by the null"),
    "underpowered": (partial(alternate, amplitude=0.5, size=4), {"contradicted", "explained by the null"}, None),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("kind", TRUTHS)
def test_oscillation_is_judged_right(kind: str) -> None:
    truth, wrong, expected = TRUTHS[kind]
    ends_right("oscillation", truth, DEPTH, wrong, expected)


@pytest.mark.nightly
def test_an_oscillation_of_the_printed_resolution_is_found() -> None:
    """Small matrices, so that the resolution lies above the margin; the excess is -2q / (2 + 4q), q the square."""
    size = 8
    limits = [score.mde or 0.0 for run in range(5) for score in rows(noise(DEPTH, size, size, run), run)]
    excess = max(float(torch.tensor([limit for limit in limits if limit]).median()), 0.1)
    amplitude = (2 * excess / (2 - 4 * excess)) ** 0.5
    assert (
        share(concluded("oscillation", partial(alternate, amplitude=amplitude, size=size), DEPTH), "supported") >= POWER
    )


def test_without_enough_layers_nothing_is_decided() -> None:
    assert claim_of("oscillation", rows(noise(4, 40, 40), 0), 4).verdict == "not resolvable"
    assert claim_of("oscillation", [], 4).verdict == "not measured"


def typed(run: int, **types: Tensor) -> list[Score]:
    return deltas(planted_stack(types), seed=run)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("truth", "right"),
    [
        (
            lambda run: typed(run, v=alternating(DEPTH, 40, 40, 0.5, seed=2 * run),
                              w=alternating(DEPTH, 40, 40, 0.5, seed=2 * run + 1)),
            "supported",
        ),
        (
            lambda run: typed(run, v=noise(DEPTH, 40, 40, 2 * run), w=noise(DEPTH, 40, 40, 2 * run + 1)),
            "explained by the null",
        ),
        (
            lambda run: typed(run, v=noise(DEPTH, 40, 40, run), w=alternating(DEPTH, 40, 40, 0.5, seed=run)),
            "contradicted",
        ),
    ],
)  # fmt: skip
def test_what_is_of_every_type_is_distinguished_from_what_is_of_one(truth: Truth, right: str) -> None:
    counts = concluded("universal_oscillation", truth, DEPTH)
    assert share(counts, right) >= POWER, counts
    assert share(counts, *({"supported", "explained by the null", "contradicted"} - {right})) <= WRONG, counts


def test_one_type_of_tensors_is_not_all() -> None:
    assert claim_of("universal_oscillation", rows(noise(DEPTH, 8, 8, 0), 0), DEPTH).verdict == "not measured"
