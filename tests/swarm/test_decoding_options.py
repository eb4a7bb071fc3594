"""Options of a request: values in their ranges, and a sentence for those that are not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from layerwise.errors import SwarmError
from layerwise.swarm.answer import Decoding


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_new_tokens": 0},
        {"min_new_tokens": 5},
        {"min_new_tokens": -1},
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"top_k": -1},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": math.inf},
        {"stop": ("",)},
        {"stop": tuple("abcdefghijklmnopq")},
        {"stop": ("a" * 2_000,)},
        {"seed": 2**63},
    ],
)
def test_a_value_out_of_its_range_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(SwarmError, match=rf"^{name} is .*; write ") as caught:
        Decoding(**{"max_new_tokens": 4, **wrong})
    assert len(str(caught.value)) < 200


def test_the_defaults_take_the_likeliest_token() -> None:
    assert Decoding(4) == Decoding(4, 0, 0.0, 1.0, 0, 1.0, (), None)
    assert Decoding(1, 1, 2.0, 0.5, 40, 1.2, ("end",), -1).stop == ("end",)
