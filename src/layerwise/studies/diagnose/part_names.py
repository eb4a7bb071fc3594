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
"""The parts in the order in which they are carried out: the later ones read the earlier ones."""

DEFAULT_PARTS = tuple(name for name in PARTS if name != "probing")
"""The parts that are about the layers on the text; a probe has sentences of its own."""

WITHIN_MINUTES = (
    tuple(name for name in DEFAULT_PARTS if name != "recovery"),
    ("proxies", "ablation", "racing"),
    ("proxies", "racing"),
    ("racing",),
)
"""The parts that take the place of the default ones if there is not enough time: the first that fit."""

WITHOUT_TEXT = ("deltas", "ablation", "racing")
"""The parts that a caller's own batches suffice for."""

DESCRIPTIVE = frozenset({"deltas", "probing"})
"""The parts that conclude nothing about the model on its text: they are about its weights, or they describe."""

CURVE_PARTS = frozenset({"predictability", "manipulation", "redundancy"})
"""The parts that measure curves and sets of layers, on less text."""

RECOVERY_STEPS = 16
CURVE_TOKENS = 1_000


def order_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the parts in the order in which they are carried out.

    >>> order_parts(("redundancy", "ablation", "proxies"))
    ('proxies', 'ablation', 'redundancy')
    """
    if not parts:
        raise OptionError(f"{spell('parts')} must name a part. Pass some of {', '.join(PARTS)}.")
    for name in parts:
        if name not in PARTS:
            raise OptionError(f"unknown part {name!r}; {near_matches(name, PARTS)}")
    return tuple(name for name in PARTS if name in parts)
