"""A set of layers is moved together, each as it was by itself, and the model is as before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from layerwise.measure.contrasts.manipulation import JOINT
from layerwise.measure.contrasts.manipulation import joint_manipulation as contrasted
from layerwise.measure.interventions import joint_replacement
from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.interventions.joint_manipulation import joint_key, joint_manipulation, redundant_layers
from layerwise.measure.interventions.perturbation_curves import perturbation_curves
from layerwise.measure.interventions.perturbations import STRATEGIES
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.results.rows import Loss
from layerwise.stack import Stack

DEPTH = 6
SET = (2, 3)


def test_the_set_costs_little_one_by_one_and_has_two_layers_at_least() -> None:
    assert redundant_layers({0: 2.0, 1: 0.1, 2: 0.05, 3: 0.01, 4: 0.3, 5: 1.0}) == (1, 2, 3)
    assert redundant_layers({0: 2.0, 1: 0.9, 2: 0.5, 3: 0.6}) == (2, 3)
    assert redundant_layers({0: 2.0, 1: -0.1, 2: 0.0, 3: 0.05}) == (1, 2), "two layers are always left"


def test_joint_and_single_losses_make_the_rows_of_the_claim(stack: Stack, reading: EvalData) -> None:
    """A set of one layer costs together what it costs by itself, to rounding: both sides move it alike."""
    rows: list[Loss] = []

    def sink(new: Sequence[Loss]) -> None:
        rows.extend(new)

    before = {name: weight.clone() for name, weight in stack.model.state_dict().items()}
    perturbation_curves(stack, reading, sizes=(0.1, 1.0), alphas=(), layers=SET, cache=ResultCache(sink=sink))
    joint_manipulation(stack, reading, SET[:1], cache=ResultCache(sink=sink))
    assert all(torch.equal(weight, before[name]) for name, weight in stack.model.state_dict().items())
    keys = {row.plan for row in rows}
    assert {joint_key(name, 0.1) for name in STRATEGIES} <= keys
    baseline = str(Plan.identity(DEPTH))
    found = contrasted(rows, baseline, dict.fromkeys(range(DEPTH), 0.1), SET[:1], seed=0)
    shares = {(row.condition, row.amount): row.value for row in found if row.metric == "excess"}
    assert {(name, 0.1) for name in STRATEGIES} <= set(shares)
    assert all(abs(excess) < 1e-4 for excess in shares.values()), shares
    assert {row.claim for row in found} == {JOINT}
    assert [row.layer for row in found if row.metric == "member"] == [SET[0]]


def test_what_is_known_is_not_computed_again(stack: Stack, reading: EvalData, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Loss] = []

    def sink(new: Sequence[Loss]) -> None:
        rows.extend(new)

    first = joint_manipulation(stack, reading, SET, cache=ResultCache(sink=sink))

    def runs(*_: object) -> None:
        raise AssertionError("a known loss was computed again")

    monkeypatch.setattr(joint_replacement, "intervention_losses", runs)
    again = joint_manipulation(stack, reading, SET, cache=ResultCache(known=tuple(rows)))
    assert again == first
