"""Format of numbers and verdicts."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.page.formatting import describe_verdict, format_interval, format_number, is_resolved
from layerwise.results.rows import Score

EFFECT = Score("effect", "delta_nll", 0.5, 0.4, 0.6, 0.001, plan="0 2", p_adjusted=0.01, mde=0.14)


@given(st.floats(min_value=1e-4, max_value=1e9) | st.floats(min_value=-1e9, max_value=-1e-4))
def test_numbers_keep_three_significant_digits(value: float) -> None:
    shown = float(format_number(value).replace(",", "").replace("−", "-"))
    assert shown == pytest.approx(value, rel=0.0051)


NUMBERS = st.floats(min_value=-1e6, max_value=1e6)


def read(text: str) -> float:
    mantissa, _, exponent = text.replace(",", "").replace("−", "-").partition("×10^")
    return float(mantissa) * 10.0 ** int(exponent or 0)


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS).map(sorted), st.booleans())
def test_printed_intervals_keep_order_and_sign(numbers: list[float], signed: bool) -> None:
    """An interval with a width is printed with one, one that excludes zero excludes it, and all three stay in order."""
    low, value, high = numbers
    text = format_interval(value, low, high, signed=signed)
    shown_value, shown = text[:-1].split(" [")
    shown_low, shown_high = shown.split(", ")
    below, middle, above = map(read, (shown_low, shown_value, shown_high))
    assert below <= middle <= above
    assert middle == pytest.approx(value, rel=0.0051, abs=0.0051 * max(abs(low), abs(high)))
    if high - low >= 1e-8:
        assert below < above
    if low >= 1e-8 or high <= -1e-8:
        assert below * above > 0
    for number, printed in ((low, shown_low), (value, shown_value), (high, shown_high)):
        assert printed.startswith("+") == (signed and read(printed) > 0)
        assert read(printed) * number >= 0.0


def test_the_corrected_p_value_takes_precedence_over_the_interval() -> None:
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
        (replace(EFFECT, p_adjusted=0.3), "not significant after correction"),
        (replace(EFFECT, low=-0.1), "no effect found (detectable above 0.600 nats)"),  # regardless of p
        (
            replace(EFFECT, low=-0.1, high=0.1, value=0.0, p_adjusted=0.3),
            "no effect found (detectable above 0.140 nats)",
        ),
        (replace(EFFECT, low=-0.1, p_adjusted=0.3, mde=None), "no effect found (detectable above 0.600 nats)"),
        (replace(EFFECT, p=None, p_adjusted=None, low=None, high=None), "no interval"),
        (replace(EFFECT, value=math.nan), "not finite"),
        (None, "not measured"),
    ],
)
def test_verdicts_follow_the_intervals(score: Score | None, words: str) -> None:
    assert describe_verdict(score, 0.05) == words
