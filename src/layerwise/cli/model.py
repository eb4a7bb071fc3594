"""The model a verb works on, opened as its options say."""

from __future__ import annotations

from transformers.utils import logging

import layerwise.models  # noqa: F401  (its architectures become known to transformers)
from layerwise.data.tokenizer import load_tokenizer
from layerwise.stack import Stack, load


def hush() -> None:
    """Keep transformers' bars and advice off the screen: what matters of them, layerwise says itself."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def open_model(
    name: str,
    tokenizer: str | None,
    layers: str | None,
    device: str,
    dtype: str,
    revision: str | None,
    trust_remote_code: bool,
) -> Stack:
    """The stack of the model called `name`; `tokenizer` replaces the one beside it. transformers itself stays quiet."""
    hush()
    given = load_tokenizer(tokenizer, trust_remote_code=trust_remote_code) if tokenizer else None
    return load(
        name, layers=layers, tokenizer=given, device=device, dtype=dtype, revision=revision,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
