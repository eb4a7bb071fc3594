"""Decoders with random weights, to train without a checkpoint.

Training seeds torch's generator before it builds the model, so all variants with the same seed start from the same
weights. The `tiny` size is a Granite model, because a Llama of this width does not get below the loss of the bigram
baseline; both sizes have the twelve layers of the published schedule. The `published` size follows the original paper
as far as it is known: 9.57 million weights, in the shape of SmolLM2.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import GraniteConfig, LlamaConfig, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.initialization import no_init_weights
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file

from layerwise.bounded import format_bytes, shortened
from layerwise.data.auto_classes import from_config
from layerwise.data.model_location import EMBEDDED
from layerwise.errors import DataError, ModelError
from layerwise.stack import Stack, load
from layerwise.stack.checks.checkpoint_files import numbers_of
from layerwise.stack.load import resolve_device
from layerwise.train.training import Base

TINY = "tiny-granite"

PUBLISHED = "published-llama"

_CONFIG = "config.json"
_WEIGHTS = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, "pytorch_model.bin", "pytorch_model.bin.index.json")
_WHEREABOUTS = frozenset({"_name_or_path", "_commit_hash", "transformers_version"})
_MAY_BE_ABSENT = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}


@dataclass(frozen=True, slots=True)
class Size:
    name: str
    vocabulary: int
    config: Callable[[PreTrainedTokenizerBase], PreTrainedConfig]


def tiny(tokenizer: PreTrainedTokenizerBase) -> GraniteConfig:
    """Return the configuration of a model with twelve layers of width 40.

    Layer outputs are multiplied by 0.3, because so many narrow layers would learn slowly otherwise.
    """
    return GraniteConfig(
        vocab_size=len(tokenizer),
        hidden_size=40,
        intermediate_size=112,
        num_hidden_layers=12,
        num_attention_heads=4,
        attention_multiplier=10**-0.5,
        embedding_multiplier=10.0,
        residual_multiplier=0.3,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        use_cache=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def published(tokenizer: PreTrainedTokenizerBase) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=668,
        num_hidden_layers=12,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        use_cache=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


SIZES: Mapping[str, Size] = {
    "tiny": Size(TINY, 512, tiny),  # so few tokens that each is frequent in a megabyte of text
    "published": Size(PUBLISHED, 4096, published),
}
"""Models without a checkpoint, by name."""


def has_weights(model: str, revision: str | None = None) -> bool:
    """Check whether a folder or hub id has weights, including pickled ones, which cannot be loaded."""
    if model in EMBEDDED:
        return True
    folder = Path(model).expanduser()
    if folder.is_dir():
        return any(any(folder.glob(pattern)) for pattern in ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt"))
    if folder.exists() or model.startswith((".", "/", "~")):
        return True  # neither a folder nor a hub id: loading it raises an error
    try:
        there = {name for name in (*_WEIGHTS, _CONFIG) if cached_file(model, name, revision=revision, **_MAY_BE_ABSENT)}
    except (OSError, ValueError):
        return True  # not a reachable hub id: loading it raises an error
    return there != {_CONFIG}


def random_model(config: Any, tokenizer: PreTrainedTokenizerBase, name: str, *, device: str = "auto") -> Base:
    """Return a base model that is randomly initialized when it is opened.

    Its `weights` is a hash of the configuration and the vocabulary.

    Raises:
        ModelError: If the configuration has no vocabulary, or if the model does not fit in memory.
        DataError: If the tokenizer has more tokens than the model has embeddings.
    """
    size = vocabulary_size(config, name)
    if len(tokenizer) > size:
        raise DataError(
            f"vocab_size of {name} must be at least {len(tokenizer):,}, the size of the tokenizer, got {size:,}. "
            f"Change its {_CONFIG}, or pass another --tokenizer."
        )
    _check_memory(config, name)
    return Base(partial(_build, config, tokenizer, name, device), _digest(config, tokenizer))


def vocabulary_size(config: Any, name: str) -> int:
    with suppress(ValueError):  # configurations with several text models
        size = getattr(config.get_text_config(), "vocab_size", None)
        if type(size) is int and size > 0:
            return size
    raise ModelError(f"{name} is not a text model: its {_CONFIG} has no vocab_size. Pass a decoder.")


def _check_memory(config: Any, name: str) -> None:
    numbers = 0
    with (
        suppress(Exception),
        torch.device("meta"),
        no_init_weights(),
    ):  # errors are raised when the model is built
        numbers = numbers_of(from_config("AutoModelForCausalLM", config))
    needed, available = numbers * torch.float32.itemsize, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise ModelError(
            f"{name} has {numbers:,} parameters, which take {format_bytes(needed)}, but this machine has "
            f"{format_bytes(available)} of memory. Reduce the sizes in its {_CONFIG}."
        )


def _build(config: Any, tokenizer: PreTrainedTokenizerBase, name: str, device: str) -> Stack:
    try:
        model = from_config("AutoModelForCausalLM", config)
    except ModelError:
        raise
    except Exception as error:  # architectures raise different errors for wrong sizes
        reason = shortened(str(error).strip().partition("\n")[0].rstrip("."), 160)
        raise ModelError(
            f"transformers cannot build a causal language model from {name} ({config.model_type}): {reason}. Pass the "
            "configuration of a ...ForCausalLM."
        ) from error
    stack = load(model.float().to(resolve_device(device)).eval(), tokenizer=tokenizer)
    stack.source = replace(stack.source, name=name)
    return stack


def _digest(config: Any, tokenizer: PreTrainedTokenizerBase) -> str:
    written = {name: value for name, value in config.to_dict().items() if name not in _WHEREABOUTS}
    content = json.dumps([written, sorted(tokenizer.get_vocab().items())], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()
