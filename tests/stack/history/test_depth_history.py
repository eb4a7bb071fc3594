"""Depth histories: recorded states, reads, and missing sources."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from layerwise.stack.history.depth_history import DepthHistory

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


@given(visits)
def test_a_record_holds_the_latest_visit_of_every_layer_in_the_order_of_their_numbers(order: list[int]) -> None:
    record, left = walked(order)
    assert list(record.sources) == sorted(left)
    assert all(torch.equal(kept, left[source]) for source, kept in zip(record.sources, record.states, strict=True))


def test_a_record_is_not_changed_by_what_follows() -> None:
    record = DepthHistory.of(state(1.0)).then(0, state(2.0))
    record.then(0, state(3.0)).then(1, state(4.0))
    assert record.sources == (0, 1)
    assert torch.equal(record.states[1], state(2.0))


@given(visits, st.integers(0, DEPTH), st.sampled_from(["renormalise", "keep"]))
@settings(deadline=None)
def test_a_reader_reads_what_is_present_among_its_sources(order: list[int], reader: int, missing: str) -> None:
    record, left = walked(order)
    weights = torch.linspace(1, 2, reader + 1, dtype=torch.float64).softmax(0)
    present = [source for source in range(reader + 1) if source in left]
    total = sum(float(weights[source]) for source in present) if missing == "renormalise" else 1.0
    expected = sum(float(weights[source]) / total * left[source] for source in present)
    torch.testing.assert_close(record.read(weights, missing), expected)  # type: ignore[arg-type]


def test_where_nothing_is_missing_weights_are_as_they_are_whatever_their_sum() -> None:
    record, _ = walked([0, 1])
    weights = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    assert torch.equal(record.read(weights, "renormalise"), record.read(weights, "keep"))


def test_weights_of_any_sum_keep_it_where_some_are_missing() -> None:
    record = DepthHistory.of(state(1.0)).then(1, state(1.0))
    weights = torch.tensor([1.0, 1.5, 1.0], dtype=torch.float64)
    torch.testing.assert_close(record.read(weights, "renormalise"), state(3.5))
    torch.testing.assert_close(record.read(weights, "keep"), state(2.0))


@given(visits, st.integers(0, DEPTH))
@settings(deadline=None)
def test_a_missing_sources_weight_falls_to_the_state_before_it(order: list[int], reader: int) -> None:
    record, left = walked(order)
    weights = torch.linspace(-1, 2, reader + 1, dtype=torch.float64)
    heirs = [max(source for source in left if source <= missing) for missing in range(reader + 1)]
    expected = sum(float(weight) * left[heir] for weight, heir in zip(weights, heirs, strict=True))
    torch.testing.assert_close(record.read(weights, "inherit"), expected)


@pytest.mark.parametrize("missing", ["renormalise", "keep", "inherit"])
def test_reading_with_a_source_missing_is_differentiable_in_all_weights_that_matter(missing: str) -> None:
    embedding, other = (torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    scalars = torch.randn(4, dtype=torch.float64, requires_grad=True)

    def read(scalars: Tensor, embedding: Tensor, other: Tensor) -> Tensor:
        return DepthHistory.of(embedding).then(2, other).read(scalars.softmax(0), missing)  # type: ignore[arg-type]

    assert torch.autograd.gradcheck(read, (scalars, embedding, other))
