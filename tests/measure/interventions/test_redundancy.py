"""Sets skipped together: random sets are distinct, known losses are kept, and one set may fail alone."""

import itertools

import pytest
import torch

from layerwise.errors import MeasureError
from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.interventions.redundancy import measure_plans, random_sets, skipping
from layerwise.plan import Plan
from layerwise.results.rows import Loss
from layerwise.stack import Stack, load
from measure.planted_models import idle_stack, idle_text, planted

PLANS = [skipping(6, layers) for layers in ((2, 3), (0, 1), (4, 5))]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_random_sets_are_all_sets_where_these_are_few(size: int) -> None:
    assert random_sets(4, size, count=6) == list(itertools.combinations(range(4), size))


def test_random_sets_are_distinct_and_drawn_from_the_seed() -> None:
    drawn = random_sets(12, 4, seed=0)
    assert len(drawn) == len(set(drawn)) == 20
    assert all(len(set(layers)) == 4 and list(layers) == sorted(layers) for layers in drawn)
    assert drawn == random_sets(12, 4, seed=0) != random_sets(12, 4, seed=1)


def test_what_is_known_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Loss] = []
    shares: list[float] = []
    measure_plans(idle_stack(), idle_text(), PLANS, ResultCache(sink=kept.extend, progress=shares.append))
    assert shares[-1] == 1.0
    assert {row.plan for row in kept} == {str(Plan.identity(6)), *map(str, PLANS)}
    assert len(kept) == 4 * len(idle_text().windows)
    rest: list[Loss] = []
    half = len(kept) // 2
    measure_plans(idle_stack(), idle_text(), PLANS, ResultCache(known=tuple(kept[:half]), sink=rest.extend))
    assert sorted(kept[:half] + rest, key=repr) == sorted(kept, key=repr)
    monkeypatch.setattr(Stack, "capture", None)
    measure_plans(idle_stack(), idle_text(), PLANS, ResultCache(known=tuple(kept)))


class Undoing(torch.nn.Module):
    def __init__(self, block: torch.nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, hidden_states: torch.Tensor, **kwargs: object) -> torch.Tensor:
        large = hidden_states.abs().amax(dim=-1, keepdim=True) > 1e20
        return torch.where(large, torch.ones_like(hidden_states), hidden_states)


@pytest.mark.parametrize("undone", [True, False])
def test_a_set_whose_loss_is_not_finite_costs_itself_alone(undone: bool) -> None:
    model = planted(identity=[3, 4])
    with torch.no_grad():
        model.model.layers[3].mlp.down_proj.weight.copy_(torch.full((32, 64), 1e30))
    stack = load(model)
    if undone:
        model.model.layers[4] = Undoing(model.model.layers[4])
    model.lm_head.weight.data *= 1e10
    model.model.norm = torch.nn.Identity()
    said: list[str] = []
    kept: list[Loss] = []
    cache = ResultCache(sink=kept.extend, log=said.append)
    plans = [skipping(6, (4,)), skipping(6, (3,))]
    if not undone:
        with pytest.raises(MeasureError, match="non-finite logits"):
            measure_plans(stack, idle_text(), plans, cache)
        return
    measure_plans(stack, idle_text(), plans, cache)
    assert "0-3 5" in said[0]
    assert {row.plan for row in kept} == {"0-5", "0-2 4 5"}
