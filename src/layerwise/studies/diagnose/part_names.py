"""The parts of a diagnosis, and the defaults of its options."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.errors import OptionError, near_matches
from layerwise.runner.verb import spell

PARTS = (
    "proxies",
    "deltas",
    "predictability",
    "ablation",
    "racing",
    "manipulation",
    "recovery",
    "redundancy",
    "probing",
)
"""All parts, in the order in which they run. Later parts read the rows of earlier ones."""

DEFAULT_PARTS = tuple(name for name in PARTS if name != "probing")
"""All parts except probing, which needs generated sentences."""

WITHIN_MINUTES = (
    tuple(name for name in DEFAULT_PARTS if name != "recovery"),
    ("proxies", "ablation", "racing"),
    ("proxies", "racing"),
    ("racing",),
)
"""Smaller sets of parts. If there is not enough time for the default parts, the first set that fits is used."""

WITHOUT_TEXT = ("deltas", "ablation", "racing")
"""Parts that can run on batches instead of text."""

DESCRIPTIVE = frozenset({"deltas", "probing"})
"""Parts that do not require a minimum amount of text."""

CURVE_PARTS = frozenset({"predictability", "manipulation", "redundancy"})
"""Parts that measure many sizes or sets of layers, and therefore use less text."""

RECOVERY_STEPS = 16
CURVE_TOKENS = 1_000


def sort_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the parts in the order in which they run.

    >>> sort_parts(("redundancy", "ablation", "proxies"))
    ('proxies', 'ablation', 'redundancy')
    """
    if not parts:
        raise OptionError(f"{spell('parts')} must contain at least one of {', '.join(PARTS)}.")
    for name in parts:
        if name not in PARTS:
            raise OptionError(f"unknown part {name!r}; {near_matches(name, PARTS)}")
    return tuple(name for name in PARTS if name in parts)
