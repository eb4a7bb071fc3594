"""A decoder with random weights, built from a configuration: the base model of trainings without a checkpoint.

The weights are drawn when the model is opened, by torch's generator, which a training seeds first: every seed begins
from weights of its own, and all arms of a seed begin from the same. The tiny size is a Granite of twelve layers, so
that every role of the published schedule has a layer; a Llama of this width ends above the loss of a table of token
pairs. The published size has what is known of the founding paper's model: twelve layers and 9.57 million weights, in
the shape of SmolLM2.
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
    """Build twelve layers of width 40 for the vocabulary of `tokenizer`; the embedding, times 10, and head are untied.

    Updates of layers are multiplied by 0.3; without that, so many narrow layers learn slowly.
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
    "tiny": Size(TINY, 512, tiny),  # so few tokens that a megabyte of text shows each of them often
    "published": Size(PUBLISHED, 4096, published),
}
"""The models without a checkpoint, by the word that names them."""


def has_weights(model: str, revision: str | None = None) -> bool:
    """Check whether a folder or hub id holds weights; pickled ones count, so that opening refuses them."""
    if model in EMBEDDED:
        return True
    folder = Path(model).expanduser()
    if folder.is_dir():
        return any(any(folder.glob(pattern)) for pattern in ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt"))
    if folder.exists() or model.startswith((".", "/", "~")):
        return True  # no folder and no hub id: opening it says what is wrong
    try:
        there = {name for name in (*_WEIGHTS, _CONFIG) if cached_file(model, name, revision=revision, **_MAY_BE_ABSENT)}
    except (OSError, ValueError):
        return True  # no hub id that can be reached: opening it says so
    return there != {_CONFIG}


def random_model(config: Any, tokenizer: PreTrainedTokenizerBase, name: str, *, device: str = "auto") -> Base:
    """Return a base with this configuration, whose random weights are drawn when it is opened.

    Its `weights` is a digest of configuration and vocabulary. Raises `ModelError` for a configuration without a
    decoder, `DataError` for more tokens than embeddings.
    """
    room = vocabulary_size(config, name)
    if len(tokenizer) > room:
        raise DataError(
            f"the tokenizer has {len(tokenizer):,} tokens, and {name} has embeddings for {room:,}; write vocab_size: "
            f"{len(tokenizer)} in its {_CONFIG}, or name another tokenizer with --tokenizer"
        )
    _check_room(config, name)
    return Base(partial(_drawn, config, tokenizer, name, device), _digest(config, tokenizer))


def vocabulary_size(config: Any, name: str) -> int:
    """How many tokens a model with this configuration has embeddings for. Raises `ModelError` for one of no text."""
    with suppress(ValueError):  # of several parts of text
        size = getattr(config.get_text_config(), "vocab_size", None)
        if type(size) is int and size > 0:
            return size
    raise ModelError(f"{name} describes no model of text: its {_CONFIG} says no vocab_size; give that of a decoder")


def _check_room(config: Any, name: str) -> None:
    numbers = 0
    with (
        suppress(Exception),
        torch.device("meta"),
        no_init_weights(),
    ):  # what cannot be drawn up says why when it is drawn
        numbers = numbers_of(from_config("AutoModelForCausalLM", config))
    needed, room = numbers * torch.float32.itemsize, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > room:
        raise ModelError(
            f"{name} describes a model of {numbers:,} numbers, which take {format_bytes(needed)}, and this machine "
            f"has {format_bytes(room)} of memory; write smaller sizes in its {_CONFIG}"
        )


def _drawn(config: Any, tokenizer: PreTrainedTokenizerBase, name: str, device: str) -> Stack:
    try:
        model = from_config("AutoModelForCausalLM", config)
    except ModelError:
        raise
    except Exception as error:  # wrong sizes make each architecture trip over something else
        reason = shortened(str(error).strip().partition("\n")[0], 160)
        raise ModelError(
            f"{name} describes a {config.model_type}, of which transformers makes no model that predicts the next "
            f"token ({reason}); give the configuration of one that has a ...ForCausalLM"
        ) from error
    stack = load(model.float().to(resolve_device(device)).eval(), tokenizer=tokenizer)
    stack.source = replace(stack.source, name=name)
    return stack


def _digest(config: Any, tokenizer: PreTrainedTokenizerBase) -> str:
    written = {name: value for name, value in config.to_dict().items() if name not in _WHEREABOUTS}
    content = json.dumps([written, sorted(tokenizer.get_vocab().items())], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()
