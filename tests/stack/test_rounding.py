"""What counts as rounding: as much as two orders of additions differ by, and less than a percent of one layer."""

import math

import pytest
import torch
from torch import Tensor

from layerwise.stack.rounding import ADDITIONS, EPS, apart, compare, gap, rounding, same

NAN, INF = math.nan, math.inf


def residual_stack(width: int, visits: int, dtype: torch.dtype, off: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(width)
    state = torch.randn(8, width, generator=generator).to(dtype)
    for visit in range(visits):
        up, down = (torch.randn(width, 4 * width, generator=generator).to(dtype) / width**0.5 for _ in range(2))
        update = torch.tanh(torch.nn.functional.layer_norm(state, (width,)) @ up) @ down.T / 2
        state = state + update * (1 + off * (visit == visits // 2))
    return state


@pytest.mark.parametrize(("width", "visits"), [(32, 1), (32, 16), (128, 4), (256, 8)])
def test_it_holds_rounding_and_shows_a_percent_of_one_layer(width: int, visits: int) -> None:
    exact = residual_stack(width, visits, torch.float64)
    rounded = residual_stack(width, visits, torch.float32).double()
    assert rounding(width, visits) / 200 < gap(rounded, exact) <= rounding(width, visits)
    off = residual_stack(width, visits, torch.float32, off=0.01)
    assert gap(off.double(), exact) > 10 * rounding(width, visits)


def filled(*rows: float) -> Tensor:
    return torch.tensor(rows).unsqueeze(1).expand(-1, 8)


@pytest.mark.parametrize(
    ("found", "expected", "apart_by"),
    [
        ([3.0, 33.0, 303.0], [3.0, 30.0, 300.0], 0.1),  # that of the worst vector, relative to its size
        ([3.0, 30.0], [3.0, 30.0], 0.0),
        ([1e4, 1.0, 1.0, 1.01, 1.0], [1e4, 1.0, 1.0, 1.0, 1.0], 0.01),  # a long vector hides nothing elsewhere
        ([1.0, 1.0, EPS, 1.0, 1.0], [1.0, 1.0, 1e-9, 1.0, 1.0], EPS),  # a short one is compared with the median one
        ([1e-9], [0.0], INF),
    ],
)
def test_a_gap_is_relative_to_a_vector(found: list[float], expected: list[float], apart_by: float) -> None:
    assert gap(filled(*found), filled(*expected)) == pytest.approx(apart_by, rel=0.01)


@pytest.mark.parametrize(
    ("found", "expected", "apart_by"),
    [
        ([NAN, 1.0], [NAN, 1.0], 0.0),
        ([-INF, 1.0], [-INF, 1.0], 0.0),
        ([NAN, 1.0], [1.0, 1.0], INF),
        ([1.0, 1.0], [NAN, 1.0], INF),
        ([INF, 1.0], [-INF, 1.0], INF),
        ([-INF, 1.5], [-INF, 1.0], 0.5),
        ([1.0], [1.0, 1.0], INF),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
    ],
)
def test_what_is_not_finite_equals_itself_alone(found: list[float], expected: list[float], apart_by: float) -> None:
    assert gap(torch.tensor(found), torch.tensor(expected)) == apart_by
    assert same(torch.tensor(found), torch.tensor(expected)) == (apart_by == 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_only_equal_bits_are_equal(dtype: torch.dtype) -> None:
    one = torch.ones(2, 3, dtype=dtype)
    assert compare(one, one.clone(), 32, 5).holds
    next_number = one + torch.finfo(dtype).eps
    assert not compare(next_number, one, 32, 5).holds
    assert not compare(next_number, one.float(), 32, 5).holds


def test_float64_is_allowed_what_norms_in_float32_leave() -> None:
    one = torch.ones(2, 3, dtype=torch.float64)
    assert compare(one + EPS, one, 32, 5).holds
    assert not compare(one + 1e-4, one, 32, 5).holds


def test_a_few_additions_stay_within_their_bound() -> None:
    generator = torch.Generator().manual_seed(0)
    state, update = (torch.randn(4, 64, generator=generator) for _ in range(2))
    left_over = ((state + update / 2) - state) - ((state + update) - state) / 2
    assert 0 < apart(left_over, state) < ADDITIONS / 4
