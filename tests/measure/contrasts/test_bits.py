"""Quantization contrasts, and layers that need more bits."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.measure.contrasts.layers import FAMILIES, contrast_quantized_layers
from layerwise.measure.interventions.sweep import plan_records
from layerwise.measure.stats.grid import MIN_UNITS
from layerwise.plan import Member, Plan, families
from layerwise.results.rows import Loss, Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import BITS, CONTRAST, DELTA, EXCESS, SAME_NORM_RANDOM, STANDS_OUT
from tier import by_tier

TYPES = ("Q4_0", "Q8_0")
TOKENS = 10


def members(depth: int, seeds: int = 2) -> tuple[Member, ...]:
    return (
        Member(Plan.identity(depth), "identity", "identity", 0),
        *families.bits(depth, TYPES),
        *families.bits_noise(depth, TYPES, range(seeds)),
    )


def losses(nll: Mapping[str, np.ndarray]) -> list[Loss]:
    return [
        Loss(plan, "text", f"d{number}", 0, float(TOKENS * value), TOKENS, 0)
        for plan, values in nll.items()
        for number, value in enumerate(values)
    ]


def contrasts(nll: Mapping[str, np.ndarray], depth: int, seeds: int = 2) -> Rows:
    return Rows(contrast_quantized_layers(losses(nll), plan_records(members(depth, seeds)), depth))


def drawn(depth: int, units: int, seed: int) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(seed)
    return {str(each.plan): 3 + chance.normal(0, 0.1, units) for each in members(depth)}


@given(st.integers(2, 5), st.integers(2, 20), st.integers(0, 10**6))
def test_contrasts_are_the_named_differences(depth: int, units: int, seed: int) -> None:
    nll = drawn(depth, units, seed)
    rows = contrasts(nll, depth)
    mean = {plan: values.mean() for plan, values in nll.items()}
    plan = {(each.family, each.strategy, each.draw): [] for each in members(depth)}  # type: ignore[var-annotated]
    for each in members(depth):
        plan[each.family, each.strategy, each.draw].append(str(each.plan))
    whole = mean[str(Plan.identity(depth))]
    for kind in TYPES:
        cost = [mean[each] - whole for each in plan["bits", kind, None]]
        noise = np.mean([[mean[each] for each in plan["bits_noise", kind, draw]] for draw in range(2)], axis=0)
        excess = [mean[each] - null for each, null in zip(plan["bits", kind, None], noise, strict=True)]
        wanted = {DELTA: (cost, None), EXCESS: (excess, SAME_NORM_RANDOM), STANDS_OUT: (_apart(cost), DELTA)}
        for metric, (values, against) in wanted.items():
            own = rows.where(metric=metric, condition=kind, against=against)
            by_layer = {row.layer: row.value for row in own if row.layer is not None}
            assert by_layer == pytest.approx(dict(enumerate(values)), abs=1e-9), metric
            if metric != STANDS_OUT:
                over = own.one(metric=metric, layer=None)
                assert over.value == pytest.approx(np.mean(values), abs=1e-9)
    assert {(row.measure, row.claim) for row in rows} == {(CONTRAST, BITS)}
    assert all((row.low is None) == (units < MIN_UNITS) for row in rows)


def _apart(values: list[float]) -> list[float]:
    return [one - np.mean([*values[:at], *values[at + 1 :]]) for at, one in enumerate(values)]


def test_quantities_without_measurements_have_no_rows() -> None:
    depth, nll = 3, drawn(3, 9, 0)
    for family, left in (("bits", set()), ("bits_noise", {DELTA})):
        without = {str(each.plan) for each in members(depth) if each.family == family}
        records = [record for record in plan_records(members(depth)) if record.plan not in without]
        kept = losses({plan: values for plan, values in nll.items() if plan not in without})
        rows = contrast_quantized_layers(kept, records, depth)
        assert {row.metric for row in rows} - {STANDS_OUT} == left
    assert contrast_quantized_layers(losses(nll), [], depth) == []
    assert {each.family for each in members(depth)} == {"identity", *FAMILIES}


def test_weights_already_at_the_type_are_ignored() -> None:
    nll = {str(each.plan): np.full(12, 3.0) for each in members(4)}
    for row in contrasts(nll, 4):
        assert (row.value, row.low, row.high) == (0.0, 0.0, 0.0)
        assert row.p_adjusted in (None, 1.0)


LAYERS, UNITS, SPREAD = 30, 40, 0.02
"""Like SmolLM2 on 10,000 tokens; `SPREAD` is in nats/token between documents."""


def named(seed: int, fragile: float, layer: int) -> set[int]:
    chance = np.random.default_rng(seed)
    base, costs = 3 + chance.normal(0, 0.5, UNITS), np.full(LAYERS, 0.004)
    costs[layer] += fragile
    own = members(LAYERS, seeds=0)
    alone = chance.normal(costs[:, None], SPREAD, (LAYERS, UNITS))
    nll = {str(own[0].plan): base}
    for each, cost in zip(own[1 : LAYERS + 1], alone, strict=True):
        nll[str(each.plan)] = base + cost
    rows = Rows(contrast_quantized_layers(losses(nll), plan_records(own), LAYERS)).where(metric=STANDS_OUT)
    return {int(row.layer or 0) for row in rows if _shown(row)}


def _shown(row: Score) -> bool:
    return row.value > 0 and row.p_adjusted is not None and row.p_adjusted <= 0.05


@pytest.mark.simulated
def test_only_a_fragile_layer_is_named() -> None:
    count = by_tier(fast=3, nightly=100)
    found = [named(seed, 0.02, seed % LAYERS) for seed in range(count)]
    assert sum(seed % LAYERS in own for seed, own in enumerate(found)) >= 0.95 * count
    alike = [named(1_000 + seed, 0.0, 0) for seed in range(count)]
    assert sum(not own for own in alike) >= 0.95 * count
