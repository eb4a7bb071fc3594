"""How numbers and verdicts are written."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.report.text.number_format import between, is_resolved, tidy, verdict
from layerwise.results.rows import Score

EFFECT = Score("effect", "delta_nll", 0.5, 0.4, 0.6, 0.001, plan="0 2", p_adjusted=0.01, mde=0.14)


@given(st.floats(min_value=1e-4, max_value=1e9) | st.floats(min_value=-1e9, max_value=-1e-4))
def test_tidy_keeps_three_significant_digits(value: float) -> None:
    shown = float(tidy(value).replace(",", "").replace("−", "-"))
    assert shown == pytest.approx(value, rel=0.0051)


def test_the_value_and_its_interval_share_their_decimals() -> None:
    assert between(0.4, 0.1234, 12.3456, signed=True) == "+0.4 [+0.1, +12.3]"
    assert between(-0.0001, None, None) == "−0.000100"
    assert between(0.0, 0.0, 0.0) == "0.00 [0.00, 0.00]"


def test_an_effect_is_judged_by_the_corrected_p_before_its_interval() -> None:
    assert is_resolved(EFFECT, 0.05)
    assert not is_resolved(replace(EFFECT, p_adjusted=0.2), 0.05)
    assert is_resolved(replace(EFFECT, p=None, p_adjusted=None), 0.05)
    assert not is_resolved(replace(EFFECT, p=None, p_adjusted=None, low=-0.1), 0.05)
    assert not is_resolved(replace(EFFECT, p=None, p_adjusted=None, low=None, high=None), 0.05)


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (EFFECT, "worse"),
        (replace(EFFECT, value=-0.5), "better"),
        (replace(EFFECT, p_adjusted=0.3), "no effect detectable above 0.140 nats"),
        (replace(EFFECT, p_adjusted=0.3, mde=None), "no effect detectable"),
        (replace(EFFECT, p=None, p_adjusted=None, low=None, high=None), "no interval"),
        (replace(EFFECT, value=math.nan), "not finite"),
        (None, "not measured"),
    ],
)
def test_verdicts(score: Score | None, words: str) -> None:
    assert verdict(score, 0.05) == words
