"""What is learned of predictions: divergences and distances, against the same written by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import kl_div

from layerwise.errors import TrainError
from layerwise.train.distillation import divergence, in_chunks, state_distance

pytestmark = pytest.mark.numbers


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 5), st.integers(2, 9), st.floats(0.1, 8.0), st.integers(0, 999))
def test_the_divergence_is_that_of_torch_and_never_negative(rows: int, classes: int, scale: float, seed: int) -> None:
    student, teacher = scale * drawn(rows, classes, seed=seed), scale * drawn(rows, classes, seed=seed + 1)
    expected = kl_div(student.double().log_softmax(-1), teacher.double().softmax(-1), reduction="sum")
    value = divergence(student, teacher)
    # Each term of the sum rounds by a few units of its largest logarithm.
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
