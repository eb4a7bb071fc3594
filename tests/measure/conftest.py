"""A random model of 6 layers and text drawn from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from layerwise.measure.language.evaluation_data import EvalData
    from layerwise.stack import Stack


@pytest.fixture(scope="module")
def stack() -> Stack:
    from layerwise.stack import load
    from measure.planted_models import planted

    return load(planted(depth=6, seed=3))


@pytest.fixture(scope="module")
def reading(stack: Stack) -> EvalData:
    from measure.planted_models import own_text

    return own_text(stack, windows=24, length=12)
