"""The only module that calls transformers' auto classes. Every call passes `trust_remote_code`.

By default, transformers asks on the terminal whether to run a checkpoint's code (`auto_map`).
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import constants, get_session
from torch import nn
from transformers.initialization import no_init_weights
from transformers.models.auto import modeling_auto

from layerwise.bounded import named
from layerwise.data.model_location import is_gguf
from layerwise.errors import ModelError


@contextmanager
def without_retries(location: str | Path | None) -> Iterator[None]:
    before = constants.HF_HUB_OFFLINE
    if not before and location is not None and not Path(location).exists():
        try:
            get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except Exception:  # depends on the HTTP client
            constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def find_class(name: str) -> Any | None:
    return getattr(transformers, name, None)


def from_pretrained(kind: Any, location: str | Path | None, *, trust_remote_code: bool = False, **options: Any) -> Any:
    """Call `kind.from_pretrained` for the checkpoint at `location`; `kind` is a transformers class or its name.

    Raises `ModelError` if the checkpoint has remote code and `trust_remote_code` is not set.
    """
    kind = find_class(kind) if isinstance(kind, str) else kind
    if location is not None and is_gguf(location):
        location, options["gguf_file"] = Path(location).absolute().parent, Path(location).name
    try:
        with without_retries(location):
            return kind.from_pretrained(location, trust_remote_code=trust_remote_code, **options)
    except ValueError as error:
        raise _refusal(str(location), error) from error


def make_config(settings: Mapping[str, Any]) -> Any:
    return transformers.AutoConfig.for_model(**settings)


def find_tokenizer_class(config: Any) -> Any:
    kind = transformers.TOKENIZER_MAPPING.get(type(config), None)
    # Mistral's class needs files that are not in a GGUF file.
    return transformers.PreTrainedTokenizerFast if kind is None or kind.__name__ == "MistralCommonBackend" else kind


@contextmanager
def quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def from_config(kind: Any, config: Any, *, trust_remote_code: bool = False) -> nn.Module:
    """Build a model of class `kind` from a copy of `config`, with random weights.

    Raises the errors of `from_pretrained`.
    """
    kind = find_class(kind) if isinstance(kind, str) else kind
    try:
        if issubclass(kind, nn.Module):
            model: nn.Module = kind(copy.deepcopy(config))
        else:
            model = kind.from_config(copy.deepcopy(config), trust_remote_code=trust_remote_code)
    except ValueError as error:
        raise _refusal(getattr(config, "name_or_path", "") or "the configuration", error) from error
    return model


def on_meta(kind: Any, config: Any) -> nn.Module:
    with warnings.catch_warnings(), torch.device("meta"), no_init_weights():
        warnings.simplefilter("ignore")
        model = from_config(kind, config)
    return model.eval()


def _refusal(location: str, error: ValueError) -> Exception:
    if "trust_remote_code" not in str(error):
        return error
    return ModelError(
        f"{named(location)} has remote code, which runs only with --trust-remote-code. If a command lacks this option, "
        "pass a checkpoint of a class that is part of transformers."
    )


def list_model_classes() -> Iterator[tuple[str, Any]]:
    for name, kind in sorted(vars(modeling_auto).items()):
        mapping = getattr(kind, "_model_mapping", None)
        if name.startswith("AutoModel") and mapping is not None:
            yield name, mapping


def register(config: Any, **models: Any) -> None:
    transformers.AutoConfig.register(config.model_type, config, exist_ok=True)
    for name, model in models.items():
        getattr(transformers, name).register(config, model, exist_ok=True)
