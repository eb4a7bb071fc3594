"""Opening the model that options name."""

from __future__ import annotations

from transformers.utils import logging

import layerwise.models  # noqa: F401  (its architectures become known to transformers)
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.experiments.options.model import LoadingOptions
from layerwise.stack import Stack, load


def quiet_transformers() -> None:
    """Turn off transformers' progress bars and advice: layerwise reports what matters of them itself."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def open_model(
    options: LoadingOptions,
    *,
    model: str,
    dtype: str = "auto",
    trust_remote_code: bool = False,
    resident_layers: int | None = None,
    device_map: str | None = None,
) -> Stack:
    """The model called `model`, opened as the options say; `tokenizer` replaces the one beside it."""
    quiet_transformers()
    path = options.tokenizer
    tokenizer = load_tokenizer(path, trust_remote_code=trust_remote_code) if path else None
    return load(
        model, layers=options.layers, tokenizer=tokenizer, device=options.device, dtype=dtype,
        revision=options.revision, trust_remote_code=trust_remote_code, resident_layers=resident_layers,
        device_map=device_map,
    )  # fmt: skip
