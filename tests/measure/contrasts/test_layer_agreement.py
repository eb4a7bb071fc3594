"""Two changes that rank the layers alike are told from two that do not, however noisy the text."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from layerwise.measure.contrasts import layer_agreement as module
from layerwise.measure.contrasts.layer_agreement import corrected, layer_agreement, reliability
from layerwise.measure.interventions.sweep import plan_records
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Member, Plan, families
from layerwise.results.rows import Loss
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import CONTRAST, CORRECTED, LAYER_AGREEMENT, RELIABILITY, SPEARMAN
from tier import by_tier

DEPTH, UNITS = 30, 40


def members(depth: int = DEPTH) -> tuple[Member, ...]:
    return (
        Member(Plan.identity(depth), "identity", "identity", 0),
        *families.leave_one_out(depth),
        *families.swap_adjacent(depth),
        *families.bits(depth, ("Q4_0",)),
        *families.bits_left_out(depth),
        *families.repeat_blocks(depth),
    )


def measured(costs: dict[str, Numbers], noise: float, seed: int, depth: int = DEPTH) -> Rows:
    """What is made of losses in which a layer costs so much under a change, with noise in every document."""
    chance = np.random.default_rng(seed)
    base, every = chance.normal(3, 0.5, UNITS), sum(costs.get("bits", np.zeros(1)))
    rows = []
    for member in members(depth):
        if member.family not in {"identity", *costs}:
            continue
        about = module.change_of(plan_records([member])[0], depth)
        if member.family != "identity" and about is None:
            continue
        layer = None if about is None else about[1]
        cost = 0.0 if about is None else every if layer is None else costs[member.family][layer]
        cost = every - cost if member.family == "bits_left_out" and layer is not None else cost
        nll = base + cost + noise * chance.normal(size=UNITS) * (member.family != "identity")
        rows += [Loss(str(member.plan), "text", f"d{at}", 0, 10 * float(each), 10, 0) for at, each in enumerate(nll)]
    return Rows(layer_agreement(rows, plan_records(members(depth)), depth))


def test_without_noise_a_correlation_is_that_of_scipy_and_nothing_is_taken_off() -> None:
    chance = np.random.default_rng(0)
    costs = {"leave_one_out": chance.random(DEPTH), "bits": chance.random(DEPTH), "swap_adjacent": chance.random(DEPTH)}
    rows = measured(costs, 0.0, 1)
    assert {(row.measure, row.claim) for row in rows} == {(CONTRAST, LAYER_AGREEMENT)}
    names = {"leave_one_out": "removed", "bits": "at Q4_0", "swap_adjacent": "exchanged with the next"}
    for one, other in (("leave_one_out", "bits"), ("leave_one_out", "swap_adjacent")):
        layers = range(DEPTH - 1 if "swap_adjacent" in (one, other) else DEPTH)
        wanted = stats.spearmanr(costs[one][layers], costs[other][layers])
        for metric in (SPEARMAN, CORRECTED):
            own = [row for row in rows.where(metric=metric) if {row.arm, row.against} == {names[one], names[other]}]
            assert [row.value for row in own] == [pytest.approx(wanted.statistic, abs=1e-9)]
            assert own[0].p == pytest.approx(wanted.pvalue, abs=0.02)
    assert [row.value for row in rows.where(metric=RELIABILITY)] == pytest.approx([1.0] * 3)


def test_what_is_worth_at_the_operating_point_is_the_loss_of_all_less_that_without_the_layer() -> None:
    cost = np.linspace(0, 1, DEPTH)
    rows = measured({"bits": cost, "bits_left_out": cost}, 0.0, 0)
    (pair,) = rows.where(metric=CORRECTED)
    assert {pair.arm, pair.against} == {"at Q4_0", "kept from Q4_0"}
    assert pair.value == pytest.approx(1.0)


def test_a_repeat_of_several_layers_is_of_no_layer() -> None:
    about = {str(each.plan): module.change_of(plan_records([each])[0], 6) for each in families.repeat_blocks(6)}
    assert sorted(found[1] for found in about.values() if found is not None) == list(range(6))  # type: ignore[type-var]
    assert about["0 1 2*2 3-5"] == ("run twice", 2)
    assert about["0-4 5*2"] == ("run twice", 5)
    assert about["0 [1 2]*2 3-5"] is None
    thrice = [module.change_of(plan_records([each])[0], 6) for each in families.repeat_blocks(6, times=(3,))]
    assert set(thrice) == {None}
    removed = [module.change_of(plan_records([each])[0], 4) for each in families.leave_one_out(4)]
    assert removed == [("removed", layer) for layer in range(4)]
    exchanged = [module.change_of(plan_records([each])[0], 4) for each in families.swap_adjacent(4)]
    assert exchanged == [("exchanged with the next", layer) for layer in range(3)]


def test_noise_lowers_what_is_measured_and_not_what_is_corrected() -> None:
    """The mean over thirty draws of equal rankings."""
    truth = np.linspace(0, 1, DEPTH)[:, None]
    measured, without = [], []
    for seed in range(30):
        chance = np.random.default_rng(seed)
        a, b = (truth + 1.2 * chance.normal(size=(DEPTH, UNITS)) for _ in range(2))
        measured.append(stats.spearmanr(a.sum(axis=1), b.sum(axis=1)).statistic)
        without.append(corrected(a, b, 0))
        assert reliability(a, 0) < 0.9
        assert corrected(a, a, 0) == pytest.approx(1.0)  # what both share is of one half and not of the other
    assert np.mean(measured) < 0.9
    assert np.mean(without) > 0.95


def test_few_units_and_a_change_that_costs_the_same_everywhere_have_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = measured({"leave_one_out": np.linspace(0, 1, DEPTH), "bits": np.zeros(DEPTH)}, 0.0, 0)
    assert not flat.where(metric=SPEARMAN)
    monkeypatch.setattr(module, "FEWEST_UNITS", UNITS + 1)
    assert not measured({"leave_one_out": np.linspace(0, 1, DEPTH), "bits": np.linspace(0, 1, DEPTH)}, 0.0, 0)


def _is_alike(rows: Rows) -> bool:
    (row,) = rows.where(metric=CORRECTED)
    return row.value > 0.5 and row.p_adjusted is not None and row.p_adjusted <= 0.05


@pytest.mark.simulated
def test_equal_and_unrelated_rankings_are_told_apart() -> None:
    """In at least 95 of 100 each, at half a reliability that the measurements on SmolLM2 have."""
    count = by_tier(fast=10, nightly=100)
    equal = unrelated = 0
    for seed in range(count):
        chance = np.random.default_rng(seed)
        truth, other = chance.normal(size=(2, DEPTH))
        equal += _is_alike(measured({"leave_one_out": truth, "bits": truth}, 3.0, seed))
        unrelated += not _is_alike(measured({"leave_one_out": truth, "bits": other}, 3.0, seed))
    assert equal >= 0.95 * count
    assert unrelated >= 0.95 * count
