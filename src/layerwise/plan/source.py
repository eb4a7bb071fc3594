"""The model that a visit takes its layer from, where a plan runs layers of several.

A plan for one model names none: `4-7` are the layers of the model at hand. A plan over several says whose layer it
means: `a:0-3 b:4-7`. What a name stands for is said when the plan meets a stack (`Stack.with_sources`); the plan
itself is text, and holds no model.
"""

from __future__ import annotations

import re
from string import ascii_lowercase

from layerwise.errors import PlanError
from layerwise.plan.checks import shown

SOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""The names of sources, as a plan's text has them before the colon."""

LONGEST_SOURCE = 40
"""The most characters of a source's name."""


def check_source(name: object) -> None:
    """Raise `PlanError` unless `name` can stand before a layer: a letter, then letters, digits, `-` and `_`."""
    if not isinstance(name, str) or SOURCE.fullmatch(name) is None:
        raise PlanError(
            f"a source is named by a letter and then letters, digits, - or _, as in a or run-2, not {shown(name)}"
        )
    if len(name) > LONGEST_SOURCE:
        raise PlanError(f"the name of a source has at most {LONGEST_SOURCE} characters, not {len(name)}")


def source_name(number: int) -> str:
    """The name of a source that has none of its own: a to z, then a1 to z1, and so on.

    >>> [source_name(number) for number in (0, 25, 26, 51)]
    ['a', 'z', 'a1', 'z1']
    """
    letters = len(ascii_lowercase)
    return f"{ascii_lowercase[number % letters]}{number // letters or ''}"
