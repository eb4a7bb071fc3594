"""The rank correlation of what a layer adds at a position with its importance there."""

from dataclasses import dataclass

import numpy as np
import pytest

from layerwise.measure.activations.by_position import PositionTables
from layerwise.measure.interventions.survey import Survey
from layerwise.studies.robustness.position_importance import (
    jackknife,
    position_importance_rows,
    relation,
    shuffled_positions,
)
from tier import by_tier

DEPTH = 12


@dataclass(frozen=True)
class Planted:
    """Importance follows the output norm by `strength`; `noise` is its relative batch noise."""

    strength: float
    noise: float = 0.7

    def tables(self, draw: np.random.Generator, profile: np.ndarray, units: int) -> PositionTables:
        seen = profile + 0.1 * draw.standard_normal(profile.shape)
        other = draw.standard_normal(seen.shape)
        worth = self.strength * seen + (1 - self.strength**2) ** 0.5 * other
        added = np.exp(0.3 * seen) + 0.01 * draw.standard_normal((units, *seen.shape))
        return PositionTables(added, worth + self.noise * draw.standard_normal((units, *seen.shape)))


def surveys(run: int, variants: dict[str, Planted], seeds: int, units: int) -> dict[str, dict[int, Survey]]:
    draw = np.random.default_rng([run, seeds, units])
    made = {}
    for variant, planted in variants.items():
        profile = draw.standard_normal((DEPTH, DEPTH))
        made[variant] = {seed: Survey(DEPTH, {}, tables=planted.tables(draw, profile, units)) for seed in range(seeds)}
    return made


NONE, ALL = Planted(0.0), Planted(0.9)


def test_the_jackknife_removes_the_bias_of_noise() -> None:
    draw = np.random.default_rng(0)
    profile = draw.standard_normal((DEPTH, DEPTH))
    plain, corrected = [], []
    for _ in range(by_tier(fast=20, nightly=60)):
        tables = Planted(1.0, noise=1.0).tables(draw, profile, 8)
        plain.append(relation(tables.added.mean(axis=0), tables.importance.mean(axis=0)))
        corrected.append(jackknife(tables, relation).value)
    assert np.mean(plain) < np.mean(corrected) <= 1.02


def test_shuffled_positions_have_no_correlation() -> None:
    draw = np.random.default_rng(1)
    profile = draw.standard_normal((DEPTH, DEPTH))
    p, (low, high) = shuffled_positions([NONE.tables(draw, profile, 8)])
    assert p > 0.01
    # Twelve rank correlations of twelve positions: a standard error of 1 / sqrt(11 * 12).
    assert (low, high) == pytest.approx((-0.17, 0.17), abs=0.03)
    assert shuffled_positions([ALL.tables(draw, profile, 8)])[0] < 0.001


def test_every_variant_has_a_row_per_layer_and_position() -> None:
    made = surveys(0, {"layershuffle": ALL, "layerdrop": NONE}, 1, 8)
    rows = list(position_importance_rows(made))
    assert len([row for row in rows if row.metric == "nll_added"]) == 2 * DEPTH**2
    relations = {row.variant: row for row in rows if row.metric == "relation" and row.against is None}
    assert relations["layershuffle"].value > 0.7 > relations["layerdrop"].value
    assert all(row.low is not None and row.p is not None for row in relations.values())
    assert (
        list(position_importance_rows({"short": {0: Survey(3, {}, tables=PositionTables(*np.ones((2, 8, 3, 3))))}}))
        == []
    )
