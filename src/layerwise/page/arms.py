"""The variants of a robustness run in reading order, each with a fixed color; unlisted ones come last."""

from __future__ import annotations

from collections.abc import Iterable

ARMS: dict[str, int] = {
    "baseline": 5,
    "sequential": 6,
    "layershuffle": 0,
    "layershuffle-position": 2,
    "layershuffle-predict": 3,
    "layershuffle-layerdrop": 8,
    "layerdrop": 1,
    "layerdrop-scratch": 7,
    "ltg": 5,
    "elc": 0,
    "elc-base": 6,
    "zero": 2,
    "normalized": 3,
    "weighted-output": 4,
    "denseformer": 1,
    "uniform": 5,
    "published": 1,
    "importance": 0,
    "permuted": 2,
    "reversed": 3,
    "random": 4,
    "stacking": 8,
    "ramp": 7,
    "freezing": 6,
    "lisa": 3,
    "retrained": 4,
}
"""Each arm with its colour among the series; what it is, the glossary says (`page/provenance.md`)."""
SPARE = (10, 9, 11)  # colours that no known arm has


def in_reading_order(arms: Iterable[str]) -> tuple[str, ...]:
    """Each arm once: the known ones as listed here, then the others as first met.

    >>> in_reading_order(["mine", "layerdrop", "baseline", "mine"])
    ('baseline', 'layerdrop', 'mine')
    """
    present = dict.fromkeys(arms)
    return (*(arm for arm in ARMS if arm in present), *(arm for arm in present if arm not in ARMS))


def arm_slots(arms: Iterable[str]) -> dict[str, int]:
    """The colour of each arm among the series.

    >>> arm_slots(["baseline", "mine"])
    {'baseline': 5, 'mine': 10}
    """
    slots: dict[str, int] = {}
    others = 0
    for arm in dict.fromkeys(arms):
        known = ARMS.get(arm)
        slots[arm] = SPARE[others % len(SPARE)] if known is None else known
        others += known is None
    return slots
