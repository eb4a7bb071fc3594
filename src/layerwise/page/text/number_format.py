"""Number formats of the report: three significant digits, a true minus sign, the interval with the same decimals."""

from __future__ import annotations

import math

from layerwise.results.rows import Score

SIGNIFICANT = 3
TINY, MOST_DECIMALS = 1e-4, 9


def decimals(*values: float) -> int:
    """Decimals that show the largest of `values` with three significant digits.

    >>> decimals(0.0123), decimals(1.5, 0.2), decimals(250.0)
    (4, 2, 0)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0.0:
        return SIGNIFICANT - 1
    return max(0, SIGNIFICANT - 1 - math.floor(math.log10(largest)))


def fixed(value: float, decimals: int, *, signed: bool = False) -> str:
    """`value` with so many decimals, thousands set apart, and `−` for minus.

    >>> fixed(-1234.5678, 1), fixed(0.5, 2, signed=True), fixed(float("nan"), 2)
    ('−1,234.6', '+0.50', 'not finite')
    """
    if not math.isfinite(value):
        return "not finite"
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    if not any(digit in "123456789" for digit in text):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def tidy(value: float, *, signed: bool = False) -> str:
    """`value` with three significant digits; whole numbers stay whole.

    >>> tidy(0.012345), tidy(12345), tidy(-0.5), tidy(1e-7)
    ('0.0123', '12,345', '−0.500', '1.00×10^−7')
    """
    if not math.isfinite(value):
        return "not finite"
    if value == int(value) and abs(value) < 1e12:
        return fixed(value, 0, signed=signed)
    if abs(value) < TINY:
        mantissa, exponent = f"{value:+.2e}".split("e") if signed else f"{value:.2e}".split("e")
        return f"{mantissa}×10^{int(exponent)}".replace("-", "−")
    return fixed(value, decimals(value), signed=signed)


def large(value: float) -> str:
    """A number that may be astronomical: from a thousand million on with a power of ten.

    >>> large(2764800.0), large(3.21e13), large(0.125)
    ('2,764,800', '3.21×10^13', '0.125')
    """
    if abs(value) < 1e9:
        return tidy(value)
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}×10^{int(exponent)}".replace("-", "−")


def between(value: float, low: float | None, high: float | None, *, signed: bool = False) -> str:
    """The value and its interval: `0.412 [0.380, 0.451]`; the value alone when there is no interval.

    More digits are shown where the two bounds would not differ otherwise, or a bound would look like zero.

    >>> between(0.4123, 0.38, 0.4512, signed=True), between(3e-6, 1e-6, 5e-6)
    ('+0.412 [+0.380, +0.451]', '3.00×10^−6 [1.00×10^−6, 5.00×10^−6]')
    >>> between(0.5, 0.49998, 0.50002), between(12.0, 0.004, 24.0)
    ('0.50000 [0.49998, 0.50002]', '12.000 [0.004, 24.000]')
    """
    if low is None or high is None:
        return tidy(value, signed=signed)
    if 0.0 < max(abs(number) for number in (value, low, high)) < TINY:
        return f"{tidy(value, signed=signed)} [{tidy(low, signed=signed)}, {tidy(high, signed=signed)}]"
    count = decimals(value, low, high)
    while count < MOST_DECIMALS and _hides_interval(low, high, count):
        count += 1
    inner = f"{fixed(low, count, signed=signed)}, {fixed(high, count, signed=signed)}"
    return f"{fixed(value, count, signed=signed)} [{inner}]"


def _hides_interval(low: float, high: float, count: int) -> bool:
    nearest = low if low > 0.0 else high if high < 0.0 else 1.0
    same = low < high and fixed(low, count) == fixed(high, count)
    return same or float(f"{nearest:.{count}f}") == 0.0


def probability(p: float | None) -> str:
    """A p-value as it is read aloud.

    >>> probability(0.00002), probability(0.0321), probability(None)
    ('<0.001', '0.032', '–')
    """
    if p is None or not math.isfinite(p):
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def percent(value: float) -> str:
    """A share of one as a percentage.

    >>> percent(0.9234)
    '92.3 %'
    """
    return "not finite" if not math.isfinite(value) else f"{100 * value:.1f} %".replace("-", "−")


def in_perplexity(nats: float) -> str:
    """A difference in nats as the change of perplexity that it means: 100 (e^x - 1) percent.

    >>> in_perplexity(0.1), in_perplexity(-0.006), in_perplexity(6.45)
    ('+10.5 %', '−0.6 %', '×633')
    """
    if nats > math.log(10):
        return f"×{math.exp(min(nats, 700.0)):,.0f}" if nats < 30 else "×10^" + f"{nats / math.log(10):.0f}"
    return f"{100 * math.expm1(nats):+.1f} %".replace("-", "−")


def excludes_zero(score: Score) -> bool:
    return score.low is not None and score.high is not None and (score.low > 0.0 or score.high < 0.0)


def is_resolved(score: Score, level: float) -> bool:
    p = score.p_adjusted if score.p_adjusted is not None else score.p
    if p is None:
        return excludes_zero(score)
    return p < level and (score.low is None or score.high is None or excludes_zero(score))


def verdict(score: Score | None, level: float) -> str:
    """Describe a loss difference in words that its interval allows: `worse`, `better`, or the effect it excludes.

    >>> verdict(Score("effect", "delta_nll", 0.001, p=0.4, mde=0.02), 0.05)
    'no effect detectable above 0.0200 nats'
    """
    if score is None:
        return "not measured"
    if not math.isfinite(score.value):
        return "not finite"
    if score.p is None and score.p_adjusted is None and score.low is None:
        return "no interval"
    if is_resolved(score, level):
        return "worse" if score.value > 0 else "better"
    if excludes_zero(score):
        return "not significant after correction" if score.p_adjusted is not None else "inconclusive"
    reach = [abs(bound) for bound in (score.mde, score.low, score.high) if bound is not None]
    return f"no effect detectable above {tidy(max(reach))} nats" if reach else "no effect detectable"
