"""Whole numbers as they are written in an option: `1-28`, `2,3`, `1-4,8`; ranges are inclusive, as in a plan."""

from __future__ import annotations

import re

from layerwise.bounded import named
from layerwise.errors import OptionError

MOST = 10_000
"""The largest number of a range: one digit too many would otherwise fill the memory."""

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def whole_numbers(flag: str, text: str, least: int = 1) -> tuple[int, ...]:
    """The numbers that `text` names, ascending and without repetition; `flag` is named in refusals.

    Raises `OptionError` for a text of another form, and for a number below `least` or above `MOST`.

    >>> whole_numbers("--loops", "1-4,8"), whole_numbers("--times", "3,2")
    ((1, 2, 3, 4, 8), (2, 3))
    """
    numbers: set[int] = set()
    for part in text.split(","):
        first, last = whole_range(flag, part, least)
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def whole_range(flag: str, text: str, least: int = 0) -> tuple[int, int]:
    """The first and the last number of one range, or a single number twice; raises as `whole_numbers` does.

    >>> whole_range("--window", "4-8"), whole_range("--window", "5")
    ((4, 8), (5, 5))
    """
    match = _PART.fullmatch(text.strip())
    if match is None:
        raise OptionError(f"{flag} takes whole numbers such as 4 or 1-28; found {named(repr(text))}")
    first = int(match[1])
    last = int(match[2] or first)
    if not least <= first <= last <= MOST:
        raise OptionError(
            f"{flag} takes ascending numbers from {least} to {MOST:,}, and {named(repr(text.strip()))} was given; "
            f"write a range such as {least}-{least + 4}"
        )
    return first, last
