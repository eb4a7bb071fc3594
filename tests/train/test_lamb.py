"""LAMB's two groups, and its first steps against arithmetic done by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.train.lamb import is_plain, lamb, parameter_groups


def small(variant: str) -> ElcForMaskedLM:
    return ElcForMaskedLM(ElcConfig.of_size("tiny", variant=variant, vocab_size=64, num_hidden_layers=2))


MATRICES = {
    "attention.query_key.weight", "attention.value.weight", "attention.projection.weight", "feed_forward.up.weight",
    "feed_forward.down.weight",
}  # fmt: skip


@pytest.mark.parametrize("variant", ["ltg", "elc", "weighted-output", "denseformer"])
def test_matrices_decay_and_nothing_else_does(variant: str) -> None:
    model = small(variant)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, plain = parameter_groups(model.named_parameters(), 0.4)
    assert {names[id(parameter)] for parameter in decaying["params"]} == {
        "head.dense.weight", *(f"encoder.layers.{layer}.{name}" for layer in range(2) for name in MATRICES),
    }  # fmt: skip
    assert (decaying["weight_decay"], decaying["adam"]) == (0.4, False)
    assert (plain["weight_decay"], plain["adam"]) == (0.0, True)
    assert len(decaying["params"]) + len(plain["params"]) == len(names)


def test_layer_weights_and_embeddings_are_plain() -> None:
    names = [name for name, _ in small("elc").named_parameters() if is_plain(name)]
    assert "encoder.layers.1.layer_weights.scalars" in names
    assert "encoder.embedding.words.weight" in names
    assert "encoder.embedding.positions" in names
    assert "encoder.layers.0.attention.post_norm.weight" in names


def test_what_does_not_learn_is_in_no_group() -> None:
    model = small("elc")
    model.encoder.layers[0].requires_grad_(False)
    count = sum(len(group["params"]) for group in parameter_groups(model.named_parameters(), 0.1))
    assert count == sum(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_two_steps_are_those_of_the_arithmetic(name: str) -> None:
    rate, decay, epsilon, (first, second) = 0.01, 0.4, 1e-6, (0.9, 0.98)
    learned = nn.Parameter(torch.tensor([[3.0, -4.0], [0.5, 1.0]], dtype=torch.float64))
    value = learned.detach().clone()
    optimizer = lamb([(name, learned)], learning_rate=rate, betas=(first, second), epsilon=epsilon, weight_decay=decay)
    mean, square = torch.zeros_like(value), torch.zeros_like(value)
    for step, gradient in enumerate((torch.tensor([[1.0, 2.0], [-3.0, 0.1]]), torch.tensor([[0.0, -1.0], [2.0, 2.0]]))):
        learned.grad = gradient.double()
        optimizer.step()
        mean = first * mean + (1 - first) * learned.grad
        square = second * square + (1 - second) * learned.grad**2
        update = mean / (square.sqrt() + epsilon) + (decay * value if name == "weight" else 0)
        ratio = value.norm() / (update.norm() + epsilon) if name == "weight" else 1.0
        value = value - rate / (1 - first ** (step + 1)) * ratio * update
        torch.testing.assert_close(learned.detach(), value, rtol=1e-12, atol=0)


def test_the_norm_of_a_large_matrix_counts_as_ten() -> None:
    learned = nn.Parameter(torch.full((4, 4), 25.0, dtype=torch.float64))  # norm 100
    optimizer = lamb([("weight", learned)], learning_rate=0.1, betas=(0.9, 0.98), epsilon=1e-6, weight_decay=0.0)
    learned.grad = torch.ones_like(learned)
    optimizer.step()
    moved = (25.0 - learned.detach()).norm().item()
    assert moved == pytest.approx(0.1 / (1 - 0.9) * 10, rel=1e-5)
