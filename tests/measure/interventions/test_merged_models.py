from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import ModelError, PlanError
from layerwise.measure.interventions.accuracy import mean_logits
from layerwise.plan.families import assignments


@given(st.integers(2, 9), st.integers(2, 12), st.integers(0, 99), st.booleans())
def test_merged_models_use_every_layer_once(models: int, depth: int, seed: int, own_depth: bool) -> None:
    names = [f"m{number}" for number in range(models)]
    for plan in assignments(names, depth, 5, seed, own_depth=own_depth):
        steps = plan.steps()
        assert sorted(plan.order()) == list(range(depth))
        assert not own_depth or plan.order() == tuple(range(depth))
        lent = Counter(step.source for step in steps)
        assert set(lent) <= set(names)
        assert max(lent.values()) <= -(-depth // models)
        assert min(lent.get(name, 0) for name in names) >= depth // models
        plan.check(depth, names)


def test_draws_depend_on_the_seed_but_not_on_their_number() -> None:
    few, many = (assignments("abc", 6, draws, 7, own_depth=False) for draws in (3, 30))
    assert many[:3] == few == assignments("abc", 6, 3, 7, own_depth=False)
    assert assignments("abc", 6, 3, 8, own_depth=False) != few
    assert len(set(many)) > 25


def test_positions_are_uniform_over_layers_and_models() -> None:
    drawn = assignments("abc", 3, 6_000, 0, own_depth=False)
    cells = Counter(
        ((step.source, step.layer), position) for plan in drawn for position, step in enumerate(plan.steps())
    )
    assert len(cells) == 27
    # 6000 / 9 = 667 are expected per cell, with a standard deviation of 24.
    assert all(abs(count - 6_000 / 9) < 5 * 25 for count in cells.values())


@pytest.mark.parametrize(
    ("models", "depth", "draws", "reason"),
    [
        (["a"], 4, 1, "models must be at least two distinct names"),
        ([], 4, 1, "models must be at least two distinct names"),
        (["a", "a"], 4, 1, "models must be at least two distinct names"),
        (["a", "b"], 1, 1, "from 2 to"),
        (["a", "b"], 4, 0, "draws must be an integer of at least 1"),
        (["a", "2b"], 4, 1, "a source name must be a letter followed by letters, digits, - or _,"),
    ],
)
def test_incompatible_models_are_rejected(models: list[str], depth: int, draws: int, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        assignments(models, depth, draws, 0, own_depth=True)


def test_mean_logits_are_float32() -> None:
    logits = [torch.randn(4, 7, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    found = mean_logits(iter(logits))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, (logits[0].float() + logits[1].float()) / 2)


def test_mean_logits_match_their_definition() -> None:
    one = torch.tensor([[3.0, 2.0, 0.0]])
    assert torch.equal(mean_logits([one]), one)
    both = mean_logits([one, torch.tensor([[0.0, 2.0, 3.0]])])
    assert both.argmax() == 1


def test_empty_and_mixed_ensembles_are_rejected() -> None:
    with pytest.raises(ModelError, match="at least one member"):
        mean_logits([])
    with pytest.raises(ModelError, match=r"got \(2, 3\) and \(2, 4\)"):
        mean_logits([torch.zeros(2, 3), torch.zeros(2, 4)])
