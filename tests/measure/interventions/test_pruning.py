"""Joint pruning on a model with a planted identity layer: it goes first and costs nothing; sets are run once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import torch

from layerwise.measure.gradients.proxies import survey
from layerwise.measure.interventions.edge_pruning import _random_row
from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.interventions.pruning import _random, members, pruning
from layerwise.measure.interventions.sweep import sweep
from layerwise.plan import Member, Plan
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.selection import Rows
from layerwise.stack import Stack, load
from measure.planted_models import idle_stack, idle_text, planted

DEPTH = 6
SKIP = [Score("ablation", "skip", value, layer=layer) for layer, value in enumerate([2.0, 0.5, 0.0, 0.1, 0.3, 1.0])]


@cache
def proxy_scores() -> list[Score]:
    return survey(idle_stack(), idle_text(), None)


@cache
def pruned() -> tuple[list[Score], list[PlanRecord]]:
    return pruning(idle_stack(), idle_text(), [*SKIP, *proxy_scores()], most=3, random_sets=5)


def dropped(count: int, rows: Sequence[Score] = ()) -> dict[str, Score]:
    """The row of every score that so many layers are dropped by."""
    return Rows(rows or pruned()[0]).where(amount=count, against=None).along("arm")


def effect(plan: str) -> float:
    losses = sweep(idle_stack(), [Plan.parse(plan)], idle_text())
    total = {each: sum(row.nll for row in losses if row.plan == each) for each in ("0-5", plan)}
    return (total[plan] - total["0-5"]) / idle_text().tokens


def test_the_planted_identity_layer_goes_first_and_costs_nothing() -> None:
    first = dropped(1)
    for name in ("skip", "block_influence", "angular", "gate_sensitivity"):
        assert first[name].value == first[name].low == first[name].high == 0.0
        assert first[name].p == 1.0
    assert first["deepest_keep_last"].value > 0.05


def test_sets_are_dropped_jointly() -> None:
    assert dropped(3)["skip"].value == pytest.approx(effect("0 1 5"), abs=1e-9)
    assert dropped(3)["deepest_keep_last"].value == pytest.approx(effect("0 1 5"), abs=1e-9)
    assert dropped(2)["skip"].value == pytest.approx(effect("0 1 4 5"), abs=1e-9)


def test_random_sets_are_the_null() -> None:
    row = dropped(1)["random"]
    assert row.low <= row.value <= row.high
    draws = [record for record in pruned()[1] if record.strategy == "random" and record.affected == 2]
    assert [record.draw for record in draws] == [0, 1, 2, 3, 4]
    effects = [effect(record.plan) for record in draws]
    row = dropped(2)["random"]
    assert row.value == pytest.approx(np.mean(effects), abs=1e-9)
    assert (row.low, row.high) == pytest.approx((min(effects), max(effects)), abs=1e-9)


@pytest.mark.parametrize("band", ["sets", "edges"])
def test_the_band_of_20_draws_holds_another_in_19_of_21_cases(band: str) -> None:
    """Each of 21 draws against the band of the others: all orders of them are alike, so this share is exact."""
    drawn = np.sin(np.linspace(-np.pi / 2, np.pi / 2, 21))
    held = 0
    for one in range(21):
        others = np.delete(drawn, one)
        if band == "edges":
            row = _random_row(others, 0.0)
        else:
            sets = [Member(Plan.parse(f"0-{at + 1}"), "pruning", "random", 1, at) for at in range(20)]
            nll = {"whole": 0.0, **{str(each.plan): own for each, own in zip(sets, others.tolist(), strict=True)}}
            losses = [Loss(plan, "t", name, 0, 10.0 + own, 1, 0) for plan, own in nll.items() for name in "de"]
            (row,) = _random(losses, "whole", sets, 1)
        held += row.low - 1e-12 <= drawn[one] <= row.high + 1e-12
    assert held == 19


def test_random_sets_are_all_sets_where_these_are_few() -> None:
    chosen = [str(member.plan) for member in members(4, [], most=2, random_sets=6) if member.strategy == "random"]
    ones = ["1-3", "0 2 3", "0 1 3", "0-2"]
    pairs = {tuple(sorted(set(range(4)) - set(each))) for each in itertools.combinations(range(4), 2)}
    assert chosen[:4] == ones
    assert {tuple(Plan.parse(each).layers()) for each in chosen[4:]} == pairs


def test_random_sets_are_distinct_and_drawn_from_the_seed() -> None:
    def drawn(seed: int) -> list[str]:
        return [str(member.plan) for member in members(12, [], seed=seed) if member.strategy == "random"]

    assert len(drawn(0)) == len(set(drawn(0))) == 12 + 5 * 20
    assert drawn(0) == drawn(0) != drawn(1)


def test_the_angular_set_is_the_run_that_turns_least() -> None:
    distances = {(0, 1): 0.2, (1, 1): 0.3, (2, 1): 0.1, (3, 1): 0.4, (0, 2): 0.5, (1, 2): 0.2, (2, 2): 0.4}
    rows = [
        Score("proxies", "angular_distance", value, layer=start, amount=width)
        for (start, width), value in distances.items()
    ]
    chosen = {member.affected: str(member.plan) for member in members(4, rows) if member.strategy == "angular"}
    assert chosen == {1: "0 1 3", 2: "0 3"}


def test_a_ranking_that_lacks_a_layer_chooses_nothing() -> None:
    assert {member.strategy for member in members(DEPTH, SKIP[1:], random_sets=1)} == {"deepest_keep_last", "random"}


def test_records_say_which_score_chose_the_set() -> None:
    assert {record.family for record in pruned()[1]} == {"pruning"}
    found = {(record.strategy, record.affected): record.plan for record in pruned()[1] if record.strategy != "random"}
    assert found["skip", 1] == "0 1 3-5"
    assert found["skip", 3] == "0 1 5"
    assert found["deepest_keep_last", 1] == "0-3 5"


def test_what_is_known_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Loss] = []
    shares: list[float] = []
    ledger = ResultCache(sink=kept.extend, progress=shares.append)
    rows, _ = pruning(idle_stack(), idle_text(), SKIP, most=2, random_sets=2, cache=ledger)
    assert shares[-1] == 1.0
    assert len({row.plan for row in kept}) * 32 == len(kept)

    half = ResultCache(known=tuple(kept[: len(kept) // 2]), sink=kept.extend)
    count = len(kept)
    again, _ = pruning(idle_stack(), idle_text(), SKIP, most=2, random_sets=2, cache=half)
    assert again == rows
    assert len(kept) - count == count - count // 2
    monkeypatch.setattr(Stack, "capture", None)
    pruning(idle_stack(), idle_text(), SKIP, most=2, random_sets=2, cache=ResultCache(known=tuple(kept[:count])))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_rows() -> None:
    scores = [*SKIP, *proxy_scores()]
    assert pruning(idle_stack(), idle_text(), scores, most=3, random_sets=5) == pruned()
    other, _ = pruning(idle_stack(), idle_text(), scores, most=3, random_sets=5, seed=1)
    assert dropped(2, other)["skip"].value == dropped(2)["skip"].value
    assert dropped(2, other)["random"] != dropped(2)["random"]


def test_a_set_whose_loss_is_not_finite_costs_itself_alone() -> None:
    """Layer 4 undoes what layer 3 adds, a state so large that the head overflows without it."""
    model = planted(identity=[3, 4])
    with torch.no_grad():
        model.model.layers[3].mlp.down_proj.weight.copy_(torch.full((32, 64), 1e30))
    stack = load(model)

    class Undoing(torch.nn.Module):
        def __init__(self, block: torch.nn.Module) -> None:
            super().__init__()
            self.block = block

        def forward(self, hidden_states: torch.Tensor, **kwargs: object) -> torch.Tensor:
            large = hidden_states.abs().amax(dim=-1, keepdim=True) > 1e20
            return torch.where(large, torch.ones_like(hidden_states), hidden_states)

    model.model.layers[4] = Undoing(model.model.layers[4])
    model.lm_head.weight.data *= 1e10
    model.model.norm = torch.nn.Identity()
    said: list[str] = []
    rows, _ = pruning(stack, idle_text(), [], most=1, random_sets=6, cache=ResultCache(log=said.append))
    assert said
    assert "0-3 5" in said[0]
    assert "deepest_keep_last" not in dropped(1, rows)
    assert np.isfinite(dropped(1, rows)["random"].value)
