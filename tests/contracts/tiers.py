"""The model types tested in the fast and slow tiers; all others are collected and tested nightly."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from transformers import CONFIG_MAPPING, __version__

from contracts.specimen import Specimen
from contracts.zoo import SUPPORTED
from tier import TIER

NIGHTLY = pytest.mark.nightly

EVERY_TAG = frozenset(
    (
        *("llama", "llama4_text", "lfm2", "recurrent_gemma", "minicpm3", "gemma4_text", "bert", "modernbert"),
        *("aimv2_vision_model", "audio-spectrogram-transformer"),
    )
)
"""One type of each kind and tag, checked in CI."""


def every_type(
    *,
    fast: Collection[str],
    slow: Collection[str] = (),
    marks: Mapping[str, Any] | None = None,
    of: Sequence[Specimen] = SUPPORTED,
) -> pytest.MarkDecorator:
    """Parametrize `one` over the zoo: `fast` and `slow` types in their tiers, the others nightly."""
    marked = []
    for one in of:
        name = one.model_type
        if TIER != "nightly" and name not in {*fast, *slow}:
            continue
        tier = () if name in fast else (pytest.mark.slow,) if name in slow else (NIGHTLY,)
        more = (pytest.mark.skipif(name not in CONFIG_MAPPING, reason=f"transformers {__version__} has no {name}"),)
        more += (marks[name],) if marks and name in marks else ()
        marked.append(pytest.param(one, marks=(*tier, *more), id=name))
    return pytest.mark.parametrize("one", marked)
