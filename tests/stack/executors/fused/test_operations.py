"""Functions of torch on the parameters of several members: what a loop over the members computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from layerwise.stack.executors.fused.batched_parameter import BatchedParameter, UnknownOperation, rows

MEMBERS, BATCH, SEQ, WIDTH, OUT = 3, 2, 5, 6, 4

Function = Callable[..., Any]

# From what is computed to the function of an activation (batch, seq, width) and one parameter, and the latter's shape.
MIXED: dict[str, tuple[Function, tuple[int, ...]]] = {
    "linear": (lambda x, w: F.linear(x, w), (OUT, WIDTH)),
    "linear of flat rows": (lambda x, w: F.linear(x.reshape(-1, WIDTH), w), (OUT, WIDTH)),
    "matmul": (lambda x, w: x @ w, (WIDTH, OUT)),
    "matmul with the transpose": (lambda x, w: torch.matmul(x, w.t()), (OUT, WIDTH)),
    "the T of a matrix": (lambda x, w: x @ w.T, (OUT, WIDTH)),
    "product on the right": (lambda x, w: x * w, (WIDTH,)),
    "product on the left": (lambda x, w: w * x, (WIDTH,)),
    "difference": (lambda x, w: w - x, (WIDTH,)),
    "a scale plus one": (lambda x, w: x * (1.0 + w.float()), (WIDTH,)),
    "an exponential": (lambda x, w: x * -torch.exp(w), (WIDTH,)),
    "a scalar parameter": (lambda x, w: x * w, ()),
    "heads": (lambda x, w: x.view(*x.shape[:2], 2, 3) * w, (3,)),
    "layer norm": (lambda x, w: F.layer_norm(x, (WIDTH,), w), (WIDTH,)),
    "RMS norm": (lambda x, w: F.rms_norm(x, (WIDTH,), w, 1e-6), (WIDTH,)),
    "a view": (lambda x, w: x * w.view(1, 1, WIDTH), (WIDTH,)),
    "convolution": (lambda x, w: F.conv1d(x.transpose(1, 2), w, groups=WIDTH), (WIDTH, 1, 2)),
    "einsum": (lambda x, w: torch.tensordot(x, w, dims=([2], [0])), (WIDTH, OUT)),
}


@pytest.mark.parametrize("name", MIXED)
def test_an_activation_and_a_parameter(name: str) -> None:
    function, shape = MIXED[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(MEMBERS, BATCH, SEQ, WIDTH, generator=generator)
    weights = torch.randn(MEMBERS, *shape, generator=generator)
    expected = torch.cat([function(*pair) for pair in zip(x, weights, strict=True)])
    with rows(MEMBERS * BATCH):
        found = function(x.flatten(0, 1), BatchedParameter(weights))
    assert type(found) is Tensor
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("transposed", [False, True])
def test_products_with_a_bias(transposed: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(MEMBERS, BATCH, SEQ, WIDTH, generator=generator)
    weights, biases = torch.randn(MEMBERS, OUT, WIDTH, generator=generator), torch.randn(MEMBERS, OUT)
    flat = x.flatten(0, 1)
    expected = torch.cat([F.linear(*each) for each in zip(x, weights, biases, strict=True)])
    with rows(MEMBERS * BATCH):
        if transposed:
            matrix = BatchedParameter(weights.transpose(1, 2))
            found = torch.addmm(BatchedParameter(biases), flat.reshape(-1, WIDTH), matrix).view(-1, SEQ, OUT)
        else:
            found = F.linear(flat, BatchedParameter(weights), BatchedParameter(biases))
    torch.testing.assert_close(found, expected)


def test_a_norm_with_scale_and_shift() -> None:
    x, scale, shift = torch.randn(MEMBERS, BATCH, WIDTH), torch.randn(MEMBERS, WIDTH), torch.randn(MEMBERS, WIDTH)
    expected = torch.cat([F.layer_norm(a, (WIDTH,), b, c) for a, b, c in zip(x, scale, shift, strict=True)])
    with rows(MEMBERS * BATCH):
        found = F.layer_norm(x.flatten(0, 1), (WIDTH,), BatchedParameter(scale), BatchedParameter(shift))
    torch.testing.assert_close(found, expected)


def test_a_parameter_has_the_shape_of_one_members() -> None:
    parameter = BatchedParameter(torch.zeros(MEMBERS, OUT, WIDTH, dtype=torch.float64))
    assert parameter.shape == (OUT, WIDTH)
    assert parameter.dtype is torch.float64
    assert (parameter.dim(), parameter.numel(), len(parameter), parameter.size(0)) == (2, OUT * WIDTH, OUT, OUT)


MEANINGLESS: dict[str, Function] = {
    "rows of something else": lambda w: F.linear(torch.ones(5, WIDTH), w),
    "an axis for the rows": lambda w: torch.ones(MEMBERS * BATCH, WIDTH) + w[:1].expand(MEMBERS * BATCH, WIDTH),
    "inside a list": lambda w: torch.cat([w, w]),
    "its data": lambda w: w.data,
    "a choice by its values": lambda w: torch.nonzero(w),
}


@pytest.mark.parametrize("name", MEANINGLESS)
def test_what_has_no_meaning_is_refused(name: str) -> None:
    with rows(MEMBERS * BATCH), pytest.raises(UnknownOperation):
        MEANINGLESS[name](BatchedParameter(torch.ones(MEMBERS, OUT, WIDTH)))
