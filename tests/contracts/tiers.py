"""Which types of the zoo CI asks for a promise, fast or slow; all others are asked at night."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from transformers import CONFIG_MAPPING, __version__

from contracts.specimen import Specimen
from contracts.zoo import SUPPORTED

NIGHTLY = pytest.mark.nightly

EVERY_TAG = frozenset(
    (
        *("llama", "llama4_text", "lfm2", "recurrent_gemma", "minicpm3", "gemma4_text", "bert", "modernbert"),
        *("aimv2_vision_model", "audio-spectrogram-transformer"),
    )
)
"""A type of each kind and of each tag that a kind has, which CI asks."""


def every_type(
    *,
    fast: Collection[str],
    slow: Collection[str] = (),
    marks: Mapping[str, Any] | None = None,
    of: Sequence[Specimen] = SUPPORTED,
) -> pytest.MarkDecorator:
    """Ask the test of `one`, each type of the zoo: those of `fast` and `slow` in these tiers, the rest at night.

    `marks` are further marks of a type; `of` are the types that the test is about, where these are not all.
    """
    marked = []
    for one in of:
        name = one.model_type
        tier = () if name in fast else (pytest.mark.slow,) if name in slow else (NIGHTLY,)
        more = (pytest.mark.skipif(name not in CONFIG_MAPPING, reason=f"transformers {__version__} has no {name}"),)
        more += (marks[name],) if marks and name in marks else ()
        marked.append(pytest.param(one, marks=(*tier, *more), id=name))
    return pytest.mark.parametrize("one", marked)
