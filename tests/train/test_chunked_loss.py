"""Losses in chunks and distillation losses."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import kl_div
from transformers import PreTrainedModel

from layerwise.data.batches import IGNORED
from layerwise.errors import TrainError
from layerwise.measure.language import loss as loss_module
from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.plan import Plan
from layerwise.plan.samplers import Shuffle
from layerwise.stack import load
from layerwise.train.distillation import divergence, in_chunks, state_distance
from layerwise.train.trainer import PlanTrainer, find_chunked_loss
from train.tiny_models import plan_trainer, tiny_llama, tiny_text, tiny_vit


def masked_model() -> PreTrainedModel:
    torch.manual_seed(0)
    config = ElcConfig(vocab_size=61, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24)
    return ElcForMaskedLM(config).eval()


@pytest.mark.parametrize("make", [tiny_llama, masked_model])
@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_the_chunked_loss_matches_the_model(make: Any, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = load(make())
    vocabulary = stack.text_config.vocab_size
    monkeypatch.setattr(loss_module, "CHUNK", rows * vocabulary)
    found = find_chunked_loss(stack)
    assert found is not None
    ids = torch.randint(4, vocabulary, (3, 7), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[0, 2:] = labels[2, 0] = IGNORED
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    seen: list[int] = []
    real = loss_module.token_losses

    def counted(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(len(logits))
        return real(logits, targets)

    monkeypatch.setattr(loss_module, "token_losses", counted)
    plan = Plan.parse("2 0 1")
    with torch.no_grad(), stack.under(plan):
        own = stack.model(**inputs).loss
        torch.testing.assert_close(found(inputs), own, rtol=1e-5, atol=0)
        torch.testing.assert_close(found(inputs, 4) * 4 / sum(seen[: len(seen) // 2]), own, rtol=1e-5, atol=0)
    assert max(seen) <= rows


class Held(PlanTrainer):
    largest = 0

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        def note(module: Any, args: Any, output: Any) -> None:
            self.largest = max(self.largest, output.logits.numel())

        handle = self.stack.model.register_forward_hook(note)
        try:
            return super().evaluate(*args, **kwargs)
        finally:
            handle.remove()


def trainer(folder: Path, model: PreTrainedModel, **options: Any) -> Held:
    held: Held = plan_trainer(load(model), tiny_text(), folder, validation=Shuffle(), made=Held, **options)
    return held


def test_validation_matches_and_holds_few_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = tiny_llama().config.vocab_size
    monkeypatch.setattr(loss_module, "CHUNK", 2 * vocabulary)
    ours = trainer(tmp_path, tiny_llama())
    assert ours._chunked_loss() is not None  # the head is looked for with logits of its own
    loss = ours.evaluate()["eval_loss"]
    assert ours.largest == 2 * vocabulary
    monkeypatch.setattr(PlanTrainer, "_chunked_loss", lambda _: None)
    parents = trainer(tmp_path, tiny_llama())
    assert loss == pytest.approx(parents.evaluate()["eval_loss"], rel=1e-5)
    assert parents.largest > 2 * vocabulary


def test_custom_losses_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_llama()
    real = model.loss_function
    model.loss_function = lambda *args, **kwargs: 1.001 * real(*args, **kwargs)
    assert find_chunked_loss(load(model)) is None
    assert find_chunked_loss(load(tiny_vit())) is None
    assert trainer(tmp_path, tiny_llama(), label_smoothing_factor=0.1)._chunked_loss() is None


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 5), st.integers(2, 9), st.floats(0.1, 8.0), st.integers(0, 999))
def test_the_divergence_matches_torch_and_is_not_negative(rows: int, classes: int, scale: float, seed: int) -> None:
    student, teacher = scale * drawn(rows, classes, seed=seed), scale * drawn(rows, classes, seed=seed + 1)
    expected = kl_div(student.double().log_softmax(-1), teacher.double().softmax(-1), reduction="sum")
    value = divergence(student, teacher)
    # Each term of the sum rounds by a few units of its largest logarithm.
    bound = 16 * torch.finfo(torch.float32).eps * rows * (1 + student.abs().max() + teacher.abs().max())
    assert abs(value.double() - expected) <= bound
    assert value >= -bound


@pytest.mark.parametrize("rows", [1, 3, 7, 20])
def test_chunks_give_the_same_loss_and_gradients(rows: int) -> None:
    head = nn.Linear(6, 11).double()
    states, teacher = drawn(7, 6).double().requires_grad_(), drawn(7, 11, seed=1).double()
    sizes: list[int] = []

    def loss_of(some: Tensor, piece: slice) -> Tensor:
        sizes.append(len(some))
        return (head(some).log_softmax(-1) * teacher[piece]).sum()

    weights = list(head.parameters())
    whole = torch.autograd.grad(3 * loss_of(states, slice(None)), [states, *weights])
    sizes.clear()
    pieces = torch.autograd.grad(3 * in_chunks(states, loss_of, rows, weights), [states, *weights])
    assert max(sizes) <= rows
    assert sum(sizes) == 7
    for one, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-12)


def test_unused_weights_have_zero_gradients() -> None:
    states, other = drawn(4, 3).requires_grad_(), nn.Parameter(torch.ones(2))
    loss = in_chunks(states, lambda some, piece: some.square().sum(), 2, [other])
    loss.backward()
    assert not other.grad.any()


def test_distances_use_scored_positions_of_paired_states() -> None:
    own, other = drawn(2, 3, 4), drawn(2, 3, 4, seed=1)
    mask = torch.tensor([[True, False, True], [False, False, True]])
    by_hand = torch.stack([(own[mask] - other[mask]).square().mean(), torch.tensor(0.0)]).mean()
    torch.testing.assert_close(state_distance([own, own], [other, own], mask, "mse"), by_hand)
    cosine = 1 - torch.nn.functional.cosine_similarity(own, other, dim=-1)
    torch.testing.assert_close(state_distance([own], [other], None, "cosine"), cosine.mean())

    with pytest.raises(TrainError, match="must have the same number of states"):
        state_distance([drawn(1, 2, 3)], [], None, "mse")
