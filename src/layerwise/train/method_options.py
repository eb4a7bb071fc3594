"""Which methods of training read which of the options that not all of them read. This module needs no torch."""

from __future__ import annotations

from collections.abc import Mapping

_DROPPING = ("layerdrop", "layerdrop-scratch", "layershuffle-layerdrop", "failout")
_SHUFFLING = ("layershuffle", "layershuffle-position", "layershuffle-predict", "layershuffle-layerdrop")

READ_BY: Mapping[str, tuple[str, ...]] = {
    "drop": _DROPPING,
    "reach": _SHUFFLING,
    "skipping": tuple(dict.fromkeys((*_DROPPING, *_SHUFFLING))),
    "position_table": ("layershuffle-position",),
    "prediction_loss": ("layershuffle-predict",),
    "prediction_reads": ("layershuffle-predict",),
}
"""The methods of `layerwise.train.recipe` that read an option, by the option's name; a test compares them."""


def methods_of(text: str) -> tuple[str, ...]:
    """The methods that a comma-separated text names, where `all` stands for every one that reads something.

    >>> methods_of("layerdrop, failout")
    ('layerdrop', 'failout')
    """
    if text.strip() == "all":
        return tuple(dict.fromkeys(method for readers in READ_BY.values() for method in readers))
    return tuple(part.strip() for part in text.split(",") if part.strip())
