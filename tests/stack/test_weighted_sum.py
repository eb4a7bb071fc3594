"""Layers that read earlier states: the weighted sum of the states, and its gradients."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import other_kernel
from layerwise.stack import history as module
from layerwise.stack.history import DepthHistory, shared, weighted_sum
from tier import by_tier

SHAPE = (3, 5, 7)


def loop(weights: Tensor, states: Sequence[Tensor]) -> Tensor:
    total = weights[0] * states[0]
    for weight, state in zip(weights[1:], states[1:], strict=True):
        total = total + weight * state
    return total


def drawn(count: int, dtype: torch.dtype = torch.float64, shape: tuple[int, ...] = SHAPE) -> list[Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(count)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 16)


@pytest.mark.parametrize(("count", "lent"), [(1, False), (3, False), (2, True)])
def test_the_gradients_are_those_of_finite_differences(count: int, lent: bool) -> None:
    states = [state.requires_grad_() for state in drawn(count)]
    weights = torch.randn(count, dtype=torch.float64, requires_grad=True)

    def function(weights: Tensor, *states: Tensor) -> Tensor:
        return weighted_sum(weights, [shared(state) if lent else state for state in states])

    assert torch.autograd.gradcheck(function, (weights, *states))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_sum_is_the_loop_up_to_rounding(dtype: torch.dtype) -> None:
    states, weights = drawn(6, dtype), torch.randn(6).softmax(0).to(dtype)
    exact = loop(weights.double(), [state.double() for state in states])
    rounding = len(states) * torch.finfo(dtype).eps * float(max(state.abs().max() for state in states))
    torch.testing.assert_close(weighted_sum(weights, states).double(), exact, rtol=0, atol=rounding)


def test_states_may_be_laid_out_in_any_way_and_differ_in_type() -> None:
    one, other, third = drawn(3, torch.float32)
    states = [one.transpose(0, 1).contiguous().transpose(0, 1), other.to(torch.bfloat16), third[:, :1].expand(SHAPE)]
    weights = torch.tensor([0.5, 0.25, 0.25])
    found = weighted_sum(weights, states)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, loop(weights, [state.float() for state in states]))


def chain(read: object, embedding: Tensor, weights: Sequence[Tensor]) -> Tensor:
    states = [embedding]
    for each in weights:
        states.append(torch.tanh(read(each, states)))  # type: ignore[operator]
    return states[-1] + 0.5 * states[2]


def recorded_chain(embedding: Tensor, weights: Sequence[Tensor]) -> Tensor:
    record, kept = DepthHistory.of(embedding), [embedding]
    for layer, each in enumerate(weights):
        kept.append(torch.tanh(record.read(each)))
        record = record.then(layer, kept[-1])
    return kept[-1] + 0.5 * kept[2]


def weights_of(depth: int) -> list[Tensor]:
    return [torch.randn(reader + 1, dtype=torch.float64).requires_grad_() for reader in range(depth)]


def check_gradients(found: Sequence[Tensor], embedding: Tensor, weights: Sequence[Tensor]) -> None:
    expected = gradients_of(chain(loop, embedding, weights), [embedding, *weights])
    for mine, own in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, own)


def gradients_of(chained: Tensor, wanted: Sequence[Tensor], **options: bool) -> tuple[Tensor, ...]:
    return torch.autograd.grad(chained.square().sum(), wanted, **options)


@given(depth=st.integers(2, 7))
@settings(max_examples=by_tier(fast=2, nightly=30), deadline=None)
def test_shared_states_get_the_gradients_of_the_loop(depth: int) -> None:
    embedding = drawn(1)[0].requires_grad_()
    weights = weights_of(depth)
    found = gradients_of(recorded_chain(embedding, weights), [embedding, *weights])
    check_gradients(found, embedding, weights)


def test_a_second_pass_over_one_graph_gives_the_same_gradients_again() -> None:
    embedding = drawn(1)[0].requires_grad_()
    weights = weights_of(4)
    chained = recorded_chain(embedding, weights)
    (alone,) = gradients_of(chained, weights[3:], retain_graph=True)
    for _ in range(2):
        found = gradients_of(chained, [embedding, *weights], retain_graph=True)
        torch.testing.assert_close(alone, found[4])
        check_gradients(found, embedding, weights)


def test_checkpointed_readers_give_the_same_gradients() -> None:
    embedding = drawn(1)[0].requires_grad_()
    weights = weights_of(4)

    def layer(each: Tensor, record: DepthHistory) -> Tensor:
        return torch.tanh(record.read(each))

    record, kept = DepthHistory.of(embedding), [embedding]
    for number, each in enumerate(weights):
        kept.append(torch.utils.checkpoint.checkpoint(layer, each, record, use_reentrant=False))
        record = record.then(number, kept[-1])
    found = gradients_of(kept[-1] + 0.5 * kept[2], [embedding, *weights])
    check_gradients(found, embedding, weights)


@pytest.mark.skipif(other_kernel.ACTIVE, reason="torch.compile makes no program of what a dispatch mode sees")
@pytest.mark.slow
def test_a_compiler_gets_one_graph_with_the_same_gradients() -> None:
    embedding = drawn(1)[0].requires_grad_()
    weights = weights_of(3)
    compiled = torch.compile(recorded_chain, fullgraph=True, backend="aot_eager")
    found = gradients_of(compiled(embedding, weights), [embedding, *weights])
    for mine, own in zip(found, gradients_of(recorded_chain(embedding, weights), [embedding, *weights]), strict=True):
        torch.testing.assert_close(mine, own)


DEPTH = 6


def state(value: float) -> Tensor:
    return torch.full((2, 3), value, dtype=torch.float64)


def walked(visits: list[int]) -> tuple[DepthHistory, dict[int, Tensor]]:
    left = {0: state(100.0)}
    record = DepthHistory.of(left[0])
    for time, layer in enumerate(visits):
        left[layer + 1] = state(float(time))
        record = record.then(layer, left[layer + 1])
    return record, left


visits = st.lists(st.integers(0, DEPTH - 1), max_size=12)


@given(visits, st.integers(0, DEPTH), st.sampled_from(["renormalize", "keep"]))
@settings(deadline=None)
def test_a_reader_reads_what_is_present_among_its_sources(order: list[int], reader: int, missing: str) -> None:
    record, left = walked(order)
    weights = torch.linspace(1, 2, reader + 1, dtype=torch.float64).softmax(0)
    present = [source for source in range(reader + 1) if source in left]
    total = sum(float(weights[source]) for source in present) if missing == "renormalize" else 1.0
    expected = sum(float(weights[source]) / total * left[source] for source in present)
    torch.testing.assert_close(record.read(weights, missing), expected)  # type: ignore[arg-type]


def test_missing_sources_change_no_sum_of_weights() -> None:
    record, _ = walked([0, 1])
    weights = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    assert torch.equal(record.read(weights, "renormalize"), record.read(weights, "keep"))

    record = DepthHistory.of(state(1.0)).then(1, state(1.0))
    weights = torch.tensor([1.0, 1.5, 1.0], dtype=torch.float64)
    torch.testing.assert_close(record.read(weights, "renormalize"), state(3.5))
    torch.testing.assert_close(record.read(weights, "keep"), state(2.0))


@given(visits, st.integers(0, DEPTH))
@settings(deadline=None)
def test_a_missing_sources_weight_falls_to_the_state_before_it(order: list[int], reader: int) -> None:
    record, left = walked(order)
    weights = torch.linspace(-1, 2, reader + 1, dtype=torch.float64)
    heirs = [max(source for source in left if source <= missing) for missing in range(reader + 1)]
    expected = sum(float(weight) * left[heir] for weight, heir in zip(weights, heirs, strict=True))
    torch.testing.assert_close(record.read(weights, "inherit"), expected)


@pytest.mark.parametrize("missing", ["renormalize", "keep", "inherit"])
def test_reading_with_a_source_missing_is_differentiable_in_all_weights_that_matter(missing: str) -> None:
    embedding, other = (torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    scalars = torch.randn(4, dtype=torch.float64, requires_grad=True)

    def read(scalars: Tensor, embedding: Tensor, other: Tensor) -> Tensor:
        return DepthHistory.of(embedding).then(2, other).read(scalars.softmax(0), missing)  # type: ignore[arg-type]

    assert torch.autograd.gradcheck(read, (scalars, embedding, other))
