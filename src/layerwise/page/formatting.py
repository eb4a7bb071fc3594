"""Format numbers, intervals, p-values and names for pages, tables and the terminal.

Numbers have three significant digits and a true minus sign. The bounds of an interval have as many decimals as the
value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from layerwise.plan.checks import TYPES
from layerwise.results.rows import Score

SIGNIFICANT = 3
TINY, MOST_DECIMALS = 1e-4, 9


def count_decimals(*values: float) -> int:
    """Return the number of decimals that gives the largest value three significant digits.

    >>> count_decimals(0.0123), count_decimals(1.5, 0.2), count_decimals(250.0)
    (4, 2, 0)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0.0:
        return SIGNIFICANT - 1
    return max(0, SIGNIFICANT - 1 - math.floor(math.log10(largest)))


def format_fixed(value: float, decimals: int, *, signed: bool = False) -> str:
    """Format a number with fixed decimals, thousands separators and a true minus sign.

    >>> format_fixed(-1234.5678, 1), format_fixed(0.5, 2, signed=True), format_fixed(float("nan"), 2)
    ('−1,234.6', '+0.50', 'not finite')
    """
    if not math.isfinite(value):
        return "not finite"
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    if not any(digit in "123456789" for digit in text):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def format_number(value: float, *, signed: bool = False) -> str:
    """Format an integer in full, and any other number with three significant digits.

    >>> format_number(0.012345), format_number(12345), format_number(-0.5), format_number(1e-7)
    ('0.0123', '12,345', '−0.500', '1.00×10^−7')
    """
    if not math.isfinite(value):
        return "not finite"
    if value == int(value) and abs(value) < 1e12:
        return format_fixed(value, 0, signed=signed)
    if abs(value) < TINY:
        mantissa, exponent = f"{value:+.2e}".split("e") if signed else f"{value:.2e}".split("e")
        return f"{mantissa}×10^{int(exponent)}".replace("-", "−")
    return format_fixed(value, count_decimals(value), signed=signed)


def format_large(value: float) -> str:
    """Format a number; from 1e9 on, as a power of ten.

    >>> format_large(2764800.0), format_large(3.21e13), format_large(0.125)
    ('2,764,800', '3.21×10^13', '0.125')
    """
    if abs(value) < 1e9:
        return format_number(value)
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}×10^{int(exponent)}".replace("-", "−")


def format_interval(value: float, low: float | None, high: float | None, *, signed: bool = False) -> str:
    """Format a value with its interval, if any.

    Decimals are added until the bounds look different, and until a bound that is not zero does not look like zero.

    >>> format_interval(0.4123, 0.38, 0.4512, signed=True), format_interval(3e-6, 1e-6, 5e-6)
    ('+0.412 [+0.380, +0.451]', '3.00×10^−6 [1.00×10^−6, 5.00×10^−6]')
    >>> format_interval(0.5, 0.49998, 0.50002), format_interval(12.0, 0.004, 24.0)
    ('0.50000 [0.49998, 0.50002]', '12.000 [0.004, 24.000]')
    """
    if low is None or high is None:
        return format_number(value, signed=signed)
    if 0.0 < max(abs(number) for number in (value, low, high)) < TINY:
        return (
            f"{format_number(value, signed=signed)} [{format_number(low, signed=signed)}, "
            f"{format_number(high, signed=signed)}]"
        )
    count = count_decimals(value, low, high)
    while count < MOST_DECIMALS and _hides_interval(low, high, count):
        count += 1
    inner = f"{format_fixed(low, count, signed=signed)}, {format_fixed(high, count, signed=signed)}"
    return f"{format_fixed(value, count, signed=signed)} [{inner}]"


def _hides_interval(low: float, high: float, count: int) -> bool:
    nearest = low if low > 0.0 else high if high < 0.0 else 1.0
    same = low < high and format_fixed(low, count) == format_fixed(high, count)
    return same or float(f"{nearest:.{count}f}") == 0.0


def format_p_value(p: float | None) -> str:
    """Format a p-value.

    >>> format_p_value(0.00002), format_p_value(0.0321), format_p_value(None)
    ('<0.001', '0.032', '–')
    """
    if p is None or not math.isfinite(p):
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def format_percent(value: float) -> str:
    """Format a fraction as a percentage.

    >>> format_percent(0.9234)
    '92.3 %'
    """
    return "not finite" if not math.isfinite(value) else f"{100 * value:.1f} %".replace("-", "−")


def format_perplexity(nats: float) -> str:
    """Format a loss difference of x nats as the factor by which the perplexity changes, e^x.

    >>> format_perplexity(0.1), format_perplexity(-0.006), format_perplexity(2.5), format_perplexity(6.45)
    ('×1.105', '×0.994', '×12.2', '×633')
    """
    if nats >= 30:
        return f"×10^{nats / math.log(10):.0f}"
    ratio = math.exp(nats)
    return f"×{ratio:.3f}" if 0.1 <= ratio < 10 else f"×{format_fixed(ratio, count_decimals(ratio))}"


def excludes_zero(score: Score) -> bool:
    return score.low is not None and score.high is not None and (score.low > 0.0 or score.high < 0.0)


def is_resolved(score: Score, level: float) -> bool:
    p = score.p_adjusted if score.p_adjusted is not None else score.p
    if p is None:
        return excludes_zero(score)
    return p < level and (score.low is None or score.high is None or excludes_zero(score))


def describe_verdict(score: Score | None, level: float) -> str:
    """Describe a loss difference as worse or better, or else state the effect that could have been detected.

    >>> describe_verdict(Score("effect", "delta_nll", 0.001, p=0.4, mde=0.02), 0.05)
    'no effect found (detectable above 0.0200 nats)'
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
    return f"no effect found (detectable above {format_number(max(reach))} nats)" if reach else "no effect found"


NAMES = {
    "random": "random order",
    "identity": "original model",
    "layer_tokens": "layer tokens (tokens times layers run)",
    "head_tokens": "head tokens (tokens that the output head reads)",
    "naive_layer_tokens": "layer tokens if plans shared no work",
    "uniform_nll": "loss of a uniform guess (nats/token)",
    "evaluations_naive": "layer evaluations if plans shared no work",
    "evaluations_bound": "layer evaluations, planned",
    "evaluations_ratio": "layer evaluations, done ÷ planned",
    "seconds_in_heads": "seconds in the output head",
    "states_live": "hidden states in memory, peak",
}

NATS_EXPLAINED = "Losses are in nats/token: with 0.69 nats more, the right token is half as likely."
"""Explanation of nats/token for the first paragraph of a page."""


def label(name: str) -> str:
    """Write the name of a strategy, family or metric in words. GGUF types are not changed.

    >>> label("leave_one_out"), label("Q4_0")
    ('leave one out', 'Q4_0')
    """
    return name if name in TYPES else NAMES.get(name, name.replace("_", " "))


def join_words(words: Sequence[str], word: str = "and") -> str:
    """Join words to a list in a sentence.

    >>> join_words(["a"]), join_words(["a", "b"]), join_words(["a", "b", "c"], "or")
    ('a', 'a and b', 'a, b or c')
    """
    return f" {word} ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def name_layers(layers: Iterable[int | str | None]) -> str:
    """Name layers in a sentence.

    >>> name_layers([3]), name_layers([3, 5, 7])
    ('layer 3', 'layers 3, 5 and 7')
    """
    numbers = list(map(str, layers))
    return f"layer{'s' if len(numbers) > 1 else ''} {join_words(numbers)}"


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun, pluralized if needed.

    >>> format_count(1, "plan"), format_count(1200, "plan")
    ('1 plan', '1,200 plans')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def to_sentence(text: str) -> str:
    """Capitalize a clause and add a period.

    >>> to_sentence("ramp is skipped"), to_sentence("Already one.")
    ('Ramp is skipped.', 'Already one.')
    """
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


NULL_NAMES = {
    "no_effect": "no effect",
    "random_init": "randomly initialized model",
    "shuffled": "shuffled layers",
    "shuffled_layers": "shuffled layers",
    "permuted_units": "permuted units",
    "independent": "independent layers",
    "same_norm_random": "random error of the same norm",
    "p_over_n": "p/n, expected for a fit to noise",
    "undamaged": "undamaged model",
    "uniform": "uniform",
}


def format_null(null: str) -> str:
    """Return the name of a null baseline in words.

    >>> format_null("random_init"), format_null("something_else")
    ('randomly initialized model', 'something else')
    """
    return NULL_NAMES.get(null, label(null))


STOPPED = "the run was interrupted or is still running. Resume it and write the report again."


def make_variant_tiles(variants: Collection[str], seeds: Mapping[str, Collection[int]]) -> tuple[tuple[str, str], ...]:
    most = max((len(seeds.get(variant, ())) for variant in variants), default=0)
    return ((f"{len(variants):,}", "variants"), *(((f"{most:,}", "seeds"),) if most else ()))


def describe_incomplete(*parts: tuple[Collection[str], str]) -> str | None:
    nonempty = [(names, noun) for names, noun in parts if names]
    if not nonempty:
        return None
    what = join_words([f"{format_count(len(names), noun)} ({join_words(list(names))})" for names, noun in nonempty])
    verb = "is" if sum(len(names) for names, _ in nonempty) == 1 else "are"
    return f"{what} {verb} incomplete: {STOPPED}"


ABSENT = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The format of a quantity in tables, sentences and figures.

    A value is multiplied by `scale` and written with `decimals` (default: three significant digits) and its `unit`.
    `signed` adds a plus sign, `bounds` adds the interval, and `whole` rounds to an integer. In figures, `axis` is the
    title of the axis, `span` its range, and `reference` the value of a dotted line.
    """

    axis: str = ""
    scale: float = 1.0
    decimals: int | None = None
    unit: str = ""
    signed: bool = False
    bounds: bool = True
    whole: bool = False
    span: tuple[float, float] | None = None
    reference: float | None = None

    def scale_score(self, score: Score) -> Score:
        if self.scale == 1.0:
            return score
        low, high = (None if bound is None else self.scale * bound for bound in (score.low, score.high))
        return replace(score, value=self.scale * score.value, low=low, high=high)

    def text(self, score: Score | None) -> str:
        """Format a score with its unit and interval, or return a dash if the score is None.

        >>> row = Score("healing", "share", 0.412, 0.38, 0.451)
        >>> Format().text(row), PERCENT.text(row), Format(decimals=1, bounds=False).text(row), Format().text(None)
        ('0.412 [0.380, 0.451]', '41.2 % [38.0, 45.1]', '0.4', '–')
        """
        if score is None:
            return ABSENT
        scaled = self.scale_score(score)
        if not self.bounds or scaled.low is None or scaled.high is None:
            return self.number(score.value)
        if self.decimals is None and not self.unit:
            return format_interval(scaled.value, scaled.low, scaled.high, signed=self.signed)
        text, _, interval = format_interval(scaled.value, scaled.low, scaled.high, signed=self.signed).partition(" ")
        if self.decimals is not None:
            text, low, high = (
                format_fixed(each, self.decimals, signed=self.signed)
                for each in (scaled.value, scaled.low, scaled.high)
            )
            interval = f"[{low}, {high}]"
        return f"{text}{self.unit} {interval}"

    def interval(self, score: Score) -> str:
        """Format the interval of a score without the value.

        >>> Format().interval(Score("healing", "share", 0.412, 0.38, 0.451))
        '[0.380, 0.451]'
        """
        scaled = self.scale_score(score)
        return format_interval(scaled.value, scaled.low, scaled.high, signed=self.signed).partition(" ")[2]

    def number(self, value: float | None) -> str:
        if value is None:
            return ABSENT
        value = self.scale * value
        if self.whole:
            value = float(round(value))
        if self.decimals is None:
            return f"{format_number(value, signed=self.signed)}{self.unit}"
        return f"{format_fixed(value, self.decimals, signed=self.signed)}{self.unit}"

    def replace(self, **changes: object) -> Format:
        """Return a copy in which some fields are changed, as in `NATS.replace(signed=True)`."""
        return replace(self, **changes)  # type: ignore[arg-type]


def format_p(row: Score) -> str:
    return format_p_value(row.p)


def format_adjusted_p(row: Score) -> str:
    return format_p_value(row.p_adjusted)


def format_mde(row: Score) -> str:
    return ABSENT if row.mde is None else format_number(row.mde)


def format_value(value: object) -> str:
    """Format a value of a column.

    >>> format_value(0.001), format_value("lora")
    ('0.001', 'lora')
    """
    return f"{value:g}" if isinstance(value, float) else str(value)


def lookup_format(names: Mapping[Any, str]) -> Callable[[Any], str]:
    """Return a function that formats a value as its name in `names`, or as itself if it has none.

    >>> [lookup_format({"mlp": "MLP"})(value) for value in ("mlp", "attention", 0.5)]
    ['MLP', 'attention', '0.5']
    """
    return lambda value: names.get(value) or format_value(value)


NUMBER = Format()
SIGNED = Format(signed=True)
COUNT = Format(whole=True, bounds=False)
NATS = Format(axis="nats/token")
DIFFERENCE = Format(axis="Δ NLL (nats/token)", signed=True, reference=0.0)
PERCENT = Format(axis="percent", scale=100.0, unit=" %")
ACCURACY = Format(axis="accuracy (%)", scale=100.0, decimals=1, unit=" %", span=(-2.0, 102.0))
