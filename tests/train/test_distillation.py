"""What is learned of predictions: divergences in chunks, and the step of a draft, against the same written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div

from layerwise.errors import TrainError
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from layerwise.train.distillation import DraftTrainer, divergence, in_chunks, state_distance
from layerwise.train.load_trained import open_trained
from layerwise.train.methods import Options, recipe
from layerwise.train.methods.draft import DraftOptions
from layerwise.train.recipe import Settings
from layerwise.train.training import Base, train
from train.heal.healing_models import DEPTH, KINDS, batch_of, logits_of, opened, splits_for
from train.tiny_models import plan_trainer, tiny_llama, tiny_text

pytestmark = pytest.mark.numbers


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 5), st.integers(2, 9), st.floats(0.1, 8.0), st.integers(0, 999))
def test_the_divergence_is_that_of_torch_and_never_negative(rows: int, classes: int, scale: float, seed: int) -> None:
    student, teacher = scale * drawn(rows, classes, seed=seed), scale * drawn(rows, classes, seed=seed + 1)
    expected = kl_div(student.double().log_softmax(-1), teacher.double().softmax(-1), reduction="sum")
    value = divergence(student, teacher)
    # A term of the sum rounds by some units of the largest logarithm in it.
    bound = 16 * torch.finfo(torch.float32).eps * rows * (1 + student.abs().max() + teacher.abs().max())
    assert abs(value.double() - expected) <= bound
    assert value >= -bound


@pytest.mark.parametrize("rows", [1, 3, 7, 20])
def test_pieces_have_the_loss_and_the_gradients_of_the_whole(rows: int) -> None:
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


def test_a_weight_that_no_piece_reads_has_a_gradient_of_zero() -> None:
    states, other = drawn(4, 3).requires_grad_(), nn.Parameter(torch.ones(2))
    loss = in_chunks(states, lambda some, piece: some.square().sum(), 2, [other])
    loss.backward()
    assert other.grad is not None
    assert not other.grad.any()


def test_only_scored_positions_count_in_a_distance() -> None:
    own, other = drawn(2, 3, 4), drawn(2, 3, 4, seed=1)
    mask = torch.tensor([[True, False, True], [False, False, True]])
    by_hand = torch.stack([(own[mask] - other[mask]).square().mean(), torch.tensor(0.0)]).mean()
    torch.testing.assert_close(state_distance([own, own], [other, own], mask, "mse"), by_hand)
    cosine = 1 - torch.nn.functional.cosine_similarity(own, other, dim=-1)
    torch.testing.assert_close(state_distance([own], [other], None, "cosine"), cosine.mean())


def test_states_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(TrainError, match="do not pair up"):
        state_distance([drawn(1, 2, 3)], [], None, "mse")


PLAN = Plan.parse("0 3")
EVERY = pytest.mark.parametrize("kind", list(KINDS))


def trainer_of(stack: Stack, kind: str, folder: Path, weight: float) -> DraftTrainer:
    """A Trainer of the draft `PLAN`, as `train` makes it."""
    own = {"options": DraftOptions(str(PLAN), weight)}
    trainer: DraftTrainer = plan_trainer(stack, splits_for(kind), folder, made=DraftTrainer, own=own)
    return trainer


def scored(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that are predicted, and their labels."""
    if labels.ndim == 1:
        return logits, labels
    own, following = logits[:, :-1], labels[:, 1:]
    return own[following != -100], following[following != -100]


def by_hand(stack: Stack, batch: Any, weight: float) -> Tensor:
    """The loss of both passes, with a graph."""
    whole, labels = scored(logits_of(stack, Plan.identity(DEPTH), batch), batch["labels"])
    drafted, _ = scored(logits_of(stack, PLAN, batch), batch["labels"])
    target = whole.detach().softmax(-1)
    divergence = kl_div(drafted.log_softmax(-1), target, reduction="batchmean")
    return cross_entropy(whole, labels) + weight * divergence


@EVERY
@pytest.mark.parametrize("items", [None, 40], ids=["pass", "step"])
def test_a_step_is_the_loss_of_the_labels_and_the_divergence_of_the_draft(
    kind: str, items: int | None, tmp_path: Path
) -> None:
    ours, theirs, batch = opened(kind), opened(kind), batch_of(kind)
    trainer = trainer_of(ours, kind, tmp_path, weight=0.5)
    # A step of several passes counts the items of all of them; models that take no count divide by their own.
    loss = trainer.training_step(ours.model, dict(batch), None if items is None else torch.tensor(items))
    expected = by_hand(theirs, batch, 0.5)
    if items is not None and trainer.model_accepts_loss_kwargs:
        expected = expected * len(scored(batch["labels"][..., None].float(), batch["labels"])[1]) / items
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    expected.backward()
    named = dict(theirs.model.named_parameters())
    for name, weight in ours.model.named_parameters():
        assert weight.grad is not None, name
        torch.testing.assert_close(weight.grad, named[name].grad, rtol=1e-4, atol=1e-6, msg=name)


def test_a_training_leaves_a_plain_model_whose_draft_agrees_more(tmp_path: Path) -> None:
    settings = Settings(epochs=4, batch_size=8, evals=1, learning_rate=1e-2)
    made = recipe("draft", Options(settings, variants=(DraftOptions("0 2", 3.0),)), 3)
    splits = tiny_text()
    train(Base(lambda: load(tiny_llama()), "x"), splits, made, 0, tmp_path, arguments={"use_cpu": True})
    opened_again = open_trained(tmp_path / "model")
    assert opened_again.added is None
    batch = splits.collate([splits.train[number] for number in range(8)])
    apart = []
    for stack in (load(tiny_llama()), opened_again.stack):
        plans = (Plan.identity(3), Plan.of((0, 2)))
        whole, drafted = (logits_of(stack, plan, batch).detach().log_softmax(-1) for plan in plans)
        apart.append(float(kl_div(drafted, whole, reduction="batchmean", log_target=True)))
    assert apart[1] < 0.5 * apart[0]
