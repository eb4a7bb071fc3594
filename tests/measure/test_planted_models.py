"""The planted truths hold under plain plans."""

import pytest
import torch

from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan, families
from layerwise.stack import Stack, load
from measure.planted_models import own_text, planted, with_harm


def skip_effects(stack: Stack, reading: EvalData) -> dict[str, float]:
    losses = sweep(stack, families.leave_one_out(stack.depth), reading)
    totals: dict[str, float] = {}
    for row in losses:
        totals[row.plan] = totals.get(row.plan, 0.0) + row.nll / reading.tokens
    whole = totals.pop(f"0-{stack.depth - 1}")
    return {plan: total - whole for plan, total in totals.items()}


def test_an_identity_layer_costs_nothing_and_every_other_is_useful() -> None:
    stack = load(planted(identity=[2]))
    effects = skip_effects(stack, own_text(stack))
    assert effects.pop("0 1 3-5") == 0.0
    assert min(effects.values()) > 0.05


@pytest.mark.parametrize("seed", [0, 1])
def test_a_harmful_layer_is_the_only_one(seed: int) -> None:
    stack, reading = with_harm(3, seed=seed)
    effects = skip_effects(stack, reading)
    assert effects["0-2 4 5"] < -0.1
    assert min(effects, key=lambda plan: effects[plan]) == "0-2 4 5"


def test_a_copy_may_be_swapped_with_its_original() -> None:
    stack = load(planted(copies=[4]))
    reading = own_text(stack, windows=8)
    losses = sweep(stack, [Plan.parse("0-2 4 3 5"), Plan.parse("1 0 2-5")], reading)
    nll = {plan: [row.nll for row in losses if row.plan == plan] for plan in ("0-5", "0-2 4 3 5", "1 0 2-5")}
    assert nll["0-2 4 3 5"] == nll["0-5"]
    assert nll["1 0 2-5"] != nll["0-5"]


def test_the_text_is_that_of_the_seed() -> None:
    stack = load(planted())
    one, same, other = (own_text(stack, windows=4, seed=seed).batches[0].input_ids for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
