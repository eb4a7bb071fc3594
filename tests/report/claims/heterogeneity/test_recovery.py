"""Recovery follows importance: what the claim says in worlds where the answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from layerwise.measure.contrasts.recovery import Recovered, associations
from layerwise.results.rows import Score
from report.claims.truths import POWER, WRONG, claim_of, concluded, share


def world(layers: int, among: float, published: float = 0.9, idle: int = 0) -> Callable[[int], Iterable[Score]]:
    """Recovery from equal damage has a rank correlation of `among` with the effect, damage one of `published`.

    The `idle` layers of least effect are not damaged by the published noise. Effects are heavy-tailed.
    """

    def truth(run: int) -> Iterable[Score]:
        draw = np.random.default_rng([run, layers])
        importance = draw.normal(size=layers)
        effects = [
            Score("ablation", str(layer), "all", "skip", float(np.exp(2 * each)))
            for layer, each in enumerate(importance)
        ]
        damage = np.exp(_related(importance, published, draw))
        slow = np.exp(_related(importance, among, draw))
        undamaged = set(np.argsort(importance)[:idle].tolist())
        noisy = [
            Recovered.at_once(layer)
            if layer in undamaged
            else Recovered(layer, float(damage[layer]), float(damage[layer] * slow[layer] ** 0.2), 8.0)
            for layer in range(layers)
        ]
        equal = [Recovered(layer, 0.1, float(slow[layer]), 8.0) for layer in range(layers)]
        yield from associations("noise_50/layer", noisy, effects, run, shuffles=20)
        yield from associations("equal_damage/layer", equal, effects, run, shuffles=20)

    return truth


def _related(importance: np.ndarray, rank_correlation: float, draw: np.random.Generator) -> np.ndarray:
    """Normal numbers whose Spearman correlation with normal ones is as asked."""
    pearson = 2 * math.sin(math.pi * rank_correlation / 6)
    return pearson * importance + math.sqrt(1 - pearson**2) * draw.normal(size=len(importance))


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("truth", "right"),
    [
        (world(24, 0.9), "supported"),
        (world(80, 0.0), "explained by the null"),
        (world(80, -0.6), "explained by the null"),
        (world(80, 0.0, published=0.0), "contradicted"),
        (world(30, 0.0, published=-0.9), "contradicted"),
    ],
)
def test_each_world_is_told(truth: Callable[[int], Iterable[Score]], right: str) -> None:
    assert share(concluded("recovery", truth, 80), right) >= 1 - WRONG  # type: ignore[arg-type]


@pytest.mark.simulated
@pytest.mark.parametrize(("layers", "among"), [(6, 0.8), (12, 0.8), (12, 0.0), (8, 0.3)])
def test_few_layers_never_show_that_a_relation_is_absent(layers: int, among: float) -> None:
    truth = world(layers, among)
    told = concluded("recovery", truth, layers)
    assert share(told, "explained by the null", "contradicted") <= WRONG
    if not among:
        assert share(told, "supported") <= WRONG
    whys = [claim_of("recovery", truth(run), layers).why for run in range(20)]
    assert any(why.endswith("are too few to decide; about 38 layers would.") for why in whys)


@pytest.mark.nightly
@pytest.mark.parametrize("layers", [20, 40, 80])
def test_a_relation_at_the_margin_is_rarely_called_small(layers: int) -> None:
    assert share(concluded("recovery", world(layers, 0.5), layers), "explained by the null", "contradicted") <= WRONG


@pytest.mark.nightly
@pytest.mark.parametrize("layers", [12, 24, 40])
def test_no_relation_among_equals_is_never_supported(layers: int) -> None:
    assert share(concluded("recovery", world(layers, 0.0, idle=layers // 2), layers), "supported") <= WRONG


@pytest.mark.simulated
@pytest.mark.parametrize("layers", [12, 30])
def test_the_printed_resolution_is_found(layers: int) -> None:
    power = claim_of("recovery", world(layers, 0.9)(0), layers).power
    printed = float(power.removesuffix(".").split()[-1])
    assert share(concluded("recovery", world(layers, max(printed, 0.5)), layers), "supported") >= POWER


def test_without_equal_damage_the_damage_is_held_fixed() -> None:
    rows = [row for row in world(30, 0.9)(3) if row.task == "noise_50/layer"]
    claim = claim_of("recovery", rows, 30)
    assert "with the initial damage held fixed" in claim.figures
    assert claim.verdict == "supported"


def test_rows_made_before_the_rule_was_are_not_measured() -> None:
    old = [Score("recovery", "ablation", "noise_50/layer", "spearman", 0.9, 0.8, 0.95)]
    assert claim_of("recovery", old, 12).verdict == "not measured"
    assert claim_of("recovery", [], 12).verdict == "not measured"
