"""The plans that tell order from absence: every strategy under its own name, every order once."""

from __future__ import annotations

from math import factorial

from layerwise.measure.interventions.order import members
from layerwise.plan import Plan, edits
from layerwise.plan.painters import PAINTERS_SEEDS


def test_named_strategies_keep_their_names_and_no_order_comes_twice() -> None:
    for depth in range(2, 13):
        _check(depth)


def _check(depth: int) -> None:
    found = members(depth)
    whole = Plan.identity(depth)
    plans = [member.plan for member in found]
    assert len(set(plans)) == len(plans)
    assert whole not in plans
    (skipped,) = (member for member in found if member.strategy == "skip")
    width = skipped.affected
    left_out = sorted(set(range(depth)) - set(skipped.plan.order()))
    assert left_out == list(range(left_out[0], left_out[0] + width))
    reversed_window = edits.reverse(whole, left_out[0], left_out[-1] + 1)
    assert [member.plan for member in found if member.strategy == "reverse"] == [reversed_window] * (width > 1)
    parallel = [member.plan for member in found if member.strategy == "parallel"]
    assert parallel == [edits.parallel(whole, left_out[0], left_out[-1] + 1)] * (width > 1)
    random = [member for member in found if member.strategy == "random"]
    # All orders of the window but two, the trained one and its reversal; where there are many, as many as published.
    assert len(random) == min(len(PAINTERS_SEEDS), max(0, factorial(width) - 2))
    assert all(member.plan == edits.shuffle(whole, left_out[0], left_out[-1] + 1, member.draw) for member in random)
    assert {(member.family, member.affected) for member in found} == {("order", width)}
