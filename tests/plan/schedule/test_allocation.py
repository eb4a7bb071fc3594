"""Allocate training to layers by importance, whatever the effects."""

import random
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layerwise.errors import PlanError
from layerwise.measure.stats.estimate import Estimate
from layerwise.measure.stats.verdicts import VerdictCriterion
from layerwise.plan.schedule.allocation import MIN_EFFECT, Allocation, Importance, allocation, explain_allocation

STRONG, WEAK, NOTHING, HARMFUL = (
    Importance(0.4, 0.3, 0.5),
    Importance(0.1, 0.05, 0.15),
    Importance(0.002, -0.004, 0.008),
    Importance(-0.2, -0.3, -0.1),
)
UNRESOLVED, LARGE = Importance(-0.02, -0.14, 0.1), Importance(1.25, -0.28, 2.79)

effects = st.builds(
    lambda value, radius: Importance(value, value - radius, value + radius),
    st.floats(-2, 5, allow_subnormal=False).map(lambda value: round(value, 4)),
    st.floats(0, 1).map(lambda radius: round(radius, 4)),
)
importances = st.lists(effects, min_size=1, max_size=16).filter(
    lambda found: any(each.detected(MIN_EFFECT) for each in found)
)
levels_of = st.integers(1, 12)
spends = st.floats(0.05, 1)


def spending(importance: list[Importance], levels: int, spend: float) -> Allocation | None:
    try:
        return allocation(importance, phases=levels, max_share=spend)
    except PlanError:
        having = sum(not each.is_excluded(MIN_EFFECT) for each in importance)
        tied = sum(each.value >= largest(importance) for each in importance) > 1  # and so learn throughout
        assert spend < (levels + having - 1) / (levels * len(importance)) or tied
        return None


def largest(importance: list[Importance]) -> float:
    return max(each.value for each in importance if each.detected(MIN_EFFECT))


@given(importances, levels_of)
def test_layers_learn_unless_an_effect_is_excluded(importance: list[Importance], levels: int) -> None:
    found = allocation(importance, phases=levels)
    for each, parts in zip(importance, found.parts, strict=True):
        assert (parts > 0) == (not each.is_excluded(MIN_EFFECT))
        assert 0 <= parts <= levels
    strongest = max((each for each in importance if each.detected(MIN_EFFECT)), key=lambda each: each.value)
    assert found.parts[importance.index(strongest)] == levels
    ranked = sorted(layer for layer, parts in enumerate(found.parts) if parts)
    ranked.sort(key=lambda layer: importance[layer].value)
    assert [found.parts[layer] for layer in ranked] == sorted(found.parts[layer] for layer in ranked)


@given(importances, levels_of)
def test_the_schedule_gives_every_layer_its_share_at_the_end(importance: list[Importance], levels: int) -> None:
    found = allocation(importance, phases=levels)
    phases = found.schedule().phases
    assert len(phases) <= levels
    for layer, parts in enumerate(found.parts):
        assert sum(phase.share for phase in phases if layer in phase.trains) == pytest.approx(parts / levels)
        learning = [layer in phase.trains for phase in phases]
        assert learning == sorted(learning)  # once it learns it goes on
    assert all(phase.trains and phase.embedding and phase.head for phase in phases)
    learning_of_all = sum(phase.share * len(phase.trains) for phase in phases) / len(importance)
    assert found.spent == pytest.approx(learning_of_all)


FAINT = [Importance(value, value, value) for value in (0.0, 4.6875, 4.7031, 0.5)]
"""With 9/28 of 7 phases, the last layer learns in one, and its share by the rule is below 1e-300."""


@given(importances, levels_of, spends)
@example(FAINT, 7, 9 / 28)
def test_a_spend_is_kept_and_no_milder_rule_would_keep_it(
    importance: list[Importance], levels: int, spend: float
) -> None:
    found = spending(importance, levels, spend)
    if found is None:
        return
    assert found.spent <= spend
    if found.sharpness == 0:
        assert all(
            parts in (0, levels if each.value > 0 else 1) for each, parts in zip(importance, found.parts, strict=True)
        )
    else:
        milder = found.sharpness * (1 - 1e-9)
        strongest = largest(importance)
        milder_parts = [
            max(1, round(levels * min(1.0, max(0.0, each.value) / strongest) ** milder)) if parts else 0
            for each, parts in zip(importance, found.parts, strict=True)
        ]
        assert sum(milder_parts) / (levels * len(milder_parts)) > spend


@given(importances, st.integers(0, 1000), st.one_of(st.none(), spends))
def test_exchanging_layers_exchanges_their_roles(importance: list[Importance], seed: int, spend: float | None) -> None:
    order = list(range(len(importance)))
    random.Random(seed).shuffle(order)
    try:
        schedule = allocation(importance, max_share=spend).schedule()
    except PlanError:
        return
    assert allocation([importance[role] for role in order], max_share=spend).schedule() == schedule.permuted(order)


@given(importances, st.sampled_from([0.125, 0.5, 2.0, 8.0]))
def test_only_the_ratios_of_effects_decide(importance: list[Importance], unit: float) -> None:
    scaled = [Importance(unit * each.value, unit * each.low, unit * each.high) for each in importance]
    assert allocation(scaled, min_effect=unit * MIN_EFFECT).parts == allocation(importance).parts


@given(effects, st.floats(0.001, 1))
def test_an_effect_is_detected_and_excluded_where_a_diagnosis_says_so(each: Importance, margin: float) -> None:
    effect = Estimate(value=each.value, low=each.low, high=each.high, error=1.0, freedom=10)
    decision = VerdictCriterion(margin=margin).concludes(effect)
    assert each.detected(margin) == (decision == "matters")
    assert each.is_excluded(margin) == (decision == "no_effect" or each.high <= 0)
    assert VerdictCriterion().margin == MIN_EFFECT


def test_a_spend_of_what_all_of_them_use_or_more_lets_all_of_them_learn_throughout() -> None:
    importance = [STRONG] + 4 * [WEAK] + 10 * [NOTHING]
    found = allocation(importance, phases=5, max_share=5 / 15)  # 5 / 15 * 5 * 15 is rounded to below 25
    assert (found.sharpness, found.spent) == (0.0, 5 / 15)
    found = allocation([STRONG, WEAK, NOTHING, HARMFUL], max_share=0.9)
    assert (found.parts, found.sharpness) == ((4, 4, 0, 0), 0.0)
    assert "0.9 is allowed, and there are no more layers" in explain_allocation(found)


def test_a_large_effect_that_is_not_resolved_trains_and_is_not_called_none() -> None:
    """Only a layer shown to have no effect above 0.01 nats can do without training."""
    found = allocation([STRONG, WEAK, LARGE, UNRESOLVED, NOTHING, HARMFUL])
    assert found.shares == pytest.approx((1, 0.5, 1, 0, 0, 0))
    assert found.parts == (4, 2, 4, 1, 0, 0)
    told = explain_allocation(found).splitlines()[1:7]
    assert "+1.2500 [-0.2800, +2.7900]" in told[2]
    assert [line.partition("  1.000  ")[2] for line in (told[0], told[2])] == [
        "in all of the steps",
        "in all of the steps: not resolved whether it matters",
    ]
    assert told[3].endswith("0.000  in the last 1/4 of the steps: not resolved whether it matters")
    assert [line.partition("never: ")[2] for line in told[4:]] == [
        "an effect above 0.01 nats is excluded",
        "the effect lies below 0",
    ]


def test_the_explanation_has_every_layer_the_rule_and_the_budget() -> None:
    told = explain_allocation(allocation([STRONG, WEAK, NOTHING, HARMFUL], max_share=0.4))
    assert re.search(r"0 +\+0\.4000 \[\+0\.3000, \+0\.5000\] +1\.000  in all of the steps", told)
    assert re.search(r"1 +\+0\.1000 .* in the last 2/4 of the steps", told)
    assert re.search(r"2 +\+0\.0020 .* never: an effect above 0\.01 nats is excluded", told)
    assert re.search(r"3 +-0\.2000 .* never: the effect lies below 0", told)
    assert "budget: 0.375 of all layer-steps (uniform training: 1); at most 0.4 is allowed" in told
    # Layer 0 learns throughout, 1 in half the steps, all four pass gradients on: (3 + 2.5 + 2 + 2) / 12.
    assert "cost: 0.792 of" in told
    assert "exaggerated" not in told


def test_a_layer_whose_share_is_too_small_for_a_number_is_not_told_that_it_never_learns() -> None:
    found = allocation(FAINT, phases=7, max_share=9 / 28)
    assert (found.parts, found.shares[-1]) == ((0, 1, 7, 1), 0.0)
    assert re.search(r"3 +\+0\.5000 .* 0\.000  in the last 1/7 of the steps", explain_allocation(found))


def test_an_exaggeration_is_called_one() -> None:
    close = [Importance(value, value - 0.01, value + 0.01) for value in (0.40, 0.39, 0.38, 0.37)]
    found = allocation(close, max_share=0.5)
    assert found.sharpness > 1
    assert "above 1, differences are exaggerated" in explain_allocation(found)


@pytest.mark.parametrize(
    ("importance", "terms", "message"),
    [
        ([], {}, "the importance of no layer"),
        ([UNRESOLVED, HARMFUL], {}, "the largest is that of layer 0, -0.0200 [-0.1400, +0.1000]"),
        ([WEAK], {"min_effect": 0.2}, "no layer has an effect above 0.2 nats"),
        ([STRONG, WEAK], {"max_share": 0.5}, "the least that is possible is 0.625: 2 layers of 2"),
        ([STRONG], {"max_share": 0.0}, "--max-share is a share"),
        ([STRONG], {"min_effect": 0.0}, "--min-effect is an effect"),
        ([STRONG], {"phases": 0}, "--phases are equal parts"),
    ],
)
def test_what_no_allocation_is_made_from_is_refused(
    importance: list[Importance], terms: dict[str, float], message: str
) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        allocation(importance, **terms)  # type: ignore[arg-type]


@pytest.mark.parametrize("bounds", [(0.1, 0.3, 0.2), (float("nan"), 0.0, 1.0), (0.0, 0.0, float("inf"))])
def test_importance_is_a_number_in_an_interval(bounds: tuple[float, float, float]) -> None:
    with pytest.raises(PlanError, match="low first"):
        Importance(*bounds)
