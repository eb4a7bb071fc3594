"""The claim that layers switch off, on planted relations over many runs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

from layerwise.measure.activations.by_position import PositionTables
from layerwise.measure.interventions.survey import Survey
from layerwise.results.rows import Score
from layerwise.studies.robustness import switching_off as module
from layerwise.studies.robustness.switching_off import (
    jackknife,
    position_worth,
    relation,
    shuffled_positions,
    switching_off,
)
from page.claims.truths import CONTRADICTED, NULL, OPEN, SUPPORTED, Truth, simulated
from tier import by_tier

DEPTH = 12
Shared = Literal["layer", "position"]
LEARNED = Score("contrast", "random_order", 0.6, 0.5, 0.7, claim="position_informed")


@dataclass(frozen=True)
class Planted:
    """Importance follows the output norm by `strength`, per layer or position; `noise` is its relative batch noise."""

    strength: float
    shared: Shared = "layer"
    noise: float = 0.7

    def tables(self, draw: np.random.Generator, profile: np.ndarray, units: int) -> PositionTables:
        seen = profile + 0.1 * draw.standard_normal(profile.shape)
        if self.shared == "position":
            seen = np.broadcast_to(seen.mean(axis=0), seen.shape) * DEPTH**0.5 + 0.05 * draw.standard_normal(seen.shape)
        other = draw.standard_normal(seen.shape)
        worth = self.strength * seen + (1 - self.strength**2) ** 0.5 * other
        added = np.exp(0.3 * seen) + 0.01 * draw.standard_normal((units, *seen.shape))
        return PositionTables(added, worth + self.noise * draw.standard_normal((units, *seen.shape)))


def surveys(run: int, arms: dict[str, Planted], seeds: int, units: int) -> dict[str, dict[int, Survey]]:
    draw = np.random.default_rng([run, seeds, units])
    made = {}
    for arm, planted in arms.items():
        profile = draw.standard_normal((DEPTH, DEPTH))
        made[arm] = {seed: Survey(DEPTH, {}, tables=planted.tables(draw, profile, units)) for seed in range(seeds)}
    return made


def truth(own: Planted, baseline: Planted | None, seeds: int = 5, units: int = 8) -> Truth:
    arms = {"layershuffle": own} | ({} if baseline is None else {"baseline": baseline})

    def rows(run: int) -> Iterable[Score]:
        return [*switching_off(surveys(run, arms, seeds, units)), LEARNED]

    return rows


NONE, SOME, ALL = Planted(0.0), Planted(0.7), Planted(0.9)
ANYWHERE = Planted(0.95, "position")


@pytest.fixture
def fewer_shuffles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHUFFLES", 400)


test_every_verdict_is_the_right_one = pytest.mark.usefixtures("fewer_shuffles")(
    simulated(
        {
            "switching_off": {
                SUPPORTED: (truth(ALL, NONE), truth(SOME, NONE)),
                CONTRADICTED: (truth(NONE, NONE), truth(NONE, ALL)),
                NULL: (truth(ALL, ALL), truth(ANYWHERE, NONE)),
                # The last has no baseline.
                OPEN: (truth(Planted(0.4, noise=4.0), NONE, seeds=2), truth(ALL, None)),
            }
        },
        depth=DEPTH,
        runs=by_tier(fast=20, nightly=200),
    )
)


@pytest.mark.usefixtures("fewer_shuffles")
@pytest.mark.nightly
@pytest.mark.parametrize("units", [8, 16])
def test_the_interval_holds_the_relation_without_noise(units: int) -> None:
    """The interval is corrected for the noise that weakens a rank correlation."""
    quiet = Planted(0.6, noise=0.0)
    true = np.mean(
        [
            relation(each.tables.added.mean(axis=0), each.tables.worth.mean(axis=0))
            for run in range(300)
            for each in surveys(10_000 + run, {"layershuffle": quiet}, 1, 2)["layershuffle"].values()
            if each.tables is not None
        ]
    )
    held = []
    for run in range(150):
        row = next(iter(switching_off(surveys(run, {"layershuffle": Planted(0.6)}, 4, units))))
        held.append(row.low <= true <= row.high)
    assert np.mean(held) >= 0.92


def test_the_jackknife_gives_back_what_noise_takes() -> None:
    draw = np.random.default_rng(0)
    profile = draw.standard_normal((DEPTH, DEPTH))
    plain, corrected = [], []
    for _ in range(by_tier(fast=20, nightly=60)):
        tables = Planted(1.0, noise=1.0).tables(draw, profile, 8)
        plain.append(relation(tables.added.mean(axis=0), tables.worth.mean(axis=0)))
        corrected.append(jackknife(tables, relation).value)
    assert np.mean(plain) < np.mean(corrected) <= 1.02


def test_shuffled_positions_are_a_null() -> None:
    draw = np.random.default_rng(1)
    profile = draw.standard_normal((DEPTH, DEPTH))
    p, (low, high) = shuffled_positions([NONE.tables(draw, profile, 8)])
    assert p > 0.01
    # Twelve rank correlations of twelve positions: a standard error of 1 / sqrt(11 * 12).
    assert (low, high) == pytest.approx((-0.17, 0.17), abs=0.03)
    assert shuffled_positions([ALL.tables(draw, profile, 8)])[0] < 0.001


def test_the_rows_of_every_arm() -> None:
    made = surveys(0, {"layershuffle": ALL, "layerdrop": NONE}, 1, 8)
    rows = list(position_worth(made))
    assert len([row for row in rows if row.metric == "nll_added"]) == 2 * DEPTH**2
    relations = {row.arm: row for row in rows if row.metric == "relation" and row.against is None}
    assert relations["layershuffle"].value > 0.7 > relations["layerdrop"].value
    assert all(row.low is not None and row.p is not None for row in relations.values())
    assert list(position_worth({"short": {0: Survey(3, {}, tables=PositionTables(*np.ones((2, 8, 3, 3))))}})) == []


def test_layers_that_do_not_vary_have_no_relation() -> None:
    flat = np.ones((DEPTH, DEPTH))
    assert float(relation(flat, flat)) == 0.0
