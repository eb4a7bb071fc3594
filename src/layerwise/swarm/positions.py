"""A cache that counts tokens and holds none: what a router's model is told of the past.

The keys and values of a request are where its layers are. The model around the layers needs only their number, for
positions and masks, and asks the cache for it. `advance` therefore fills the cache of `generate` with rows of one zero
a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache, LinearAttentionCacheLayerMixin


def find_cache(inputs: Any) -> Cache | None:
    """The cache among the inputs of a model's forward, if there is one."""
    return next((value for value in inputs.values() if isinstance(value, Cache)), None)


def advance(cache: Cache, kinds: Sequence[str | None], batch: int, tokens: int) -> None:
    """Let `cache` look as if every layer had read `tokens` more tokens of `batch` texts.

    `kinds` are the layer types by the configuration, for a cache that was not built from it: layers of linear attention
    leave no keys in it.
    """
    own: Any = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    nothing = torch.zeros(batch, 1, tokens, 1)
    if own.layer_class_to_replicate is not None:
        for layer, kind in enumerate(kinds):
            if kind is None or not kind.startswith("linear"):
                own.update(nothing, nothing, layer)
        return
    for layer in own.layers:
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            layer.has_previous_state = dict.fromkeys(layer.has_previous_state, True)
        if isinstance(layer, CacheLayerMixin):
            layer.update(nothing, nothing)
        if hasattr(layer, "update_indexer"):
            layer.update_indexer(torch.zeros(batch, tokens, 1))
