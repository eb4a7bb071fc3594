"""The calls of the layers, pass by pass, for a model whose layers are elsewhere.

Logits processors, stopping criteria and settings come from `generate` itself. The keys and values are on the nodes;
`advance` fills the cache of `generate` with one zero per token, since the model reads only its length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    EncoderDecoderCache,
    LinearAttentionCacheLayerMixin,
)

from layerwise.errors import SwarmError
from layerwise.stack import Capture, Stack


@dataclass
class Prepared:
    """What `generate` has made ready before its own loop."""

    ids: Tensor
    processors: Any
    criteria: Any
    config: Any
    inputs: dict[str, Any]


def prepared(stack: Stack, ids: Tensor, options: dict[str, Any]) -> Prepared:
    """What `model.generate(ids, **options)` would begin with. Raises `SwarmError` for a search with beams."""
    model: Any = stack.model

    def take(model: Any, input_ids: Tensor, **given: Any) -> Prepared:
        processors, criteria = given.pop("logits_processor"), given.pop("stopping_criteria")
        config = given.pop("generation_config")
        given.pop("synced_gpus", None)
        given.pop("streamer", None)
        return Prepared(input_ids, processors, criteria, config, given)

    if options.get("num_beams", 1) != 1:
        raise SwarmError("a swarm does not search with beams: leave out num_beams, or run the model in one process")
    made: Any = model.generate(ids, custom_generate=take, **options)
    return made


@dataclass
class CachedDecoding:
    """A text as its model reads it: what the layers are called with in each pass, while they keep keys and values
    elsewhere."""

    stack: Stack
    ready: Prepared
    is_first: bool = True

    def capture(self, ids: Tensor) -> Capture:
        length = None if self.is_first or find_cache(self.ready.inputs) is None else 1
        return self._captured(ids, self.ready.inputs, next_sequence_length=length, is_first_iteration=self.is_first)

    def passed(self, outputs: Any, state: Tensor) -> None:
        model: Any = self.stack.model
        self.ready.inputs = model._update_model_kwargs_for_generation(
            outputs, self.ready.inputs, is_encoder_decoder=False
        )
        cache = find_cache(self.ready.inputs)
        if cache is not None:
            kinds = getattr(self.stack.text_config, "layer_types", None) or [None] * self.stack.depth
            advance(cache, kinds, state.shape[0], state.shape[1])
        self.is_first = False

    def recapture(self, ids: Tensor, inputs: Mapping[str, Any]) -> Capture:
        fresh = dict(inputs)
        for name, value in inputs.items():
            if isinstance(value, Cache):
                config = self.stack.text_config
                kind: Any = type(value)
                fresh[name] = DynamicCache(config=config) if kind is DynamicCache else kind()
        for name in ("position_ids", "cache_position"):
            fresh.pop(name, None)
        return self._captured(ids, fresh, is_first_iteration=True)

    def _captured(self, ids: Tensor, inputs: Mapping[str, Any], **options: Any) -> Capture:
        model: Any = self.stack.model
        with torch.inference_mode():
            given = model.prepare_inputs_for_generation(ids, **options, **inputs)
            return self.stack.capture_pass({**given, "return_dict": True})


def find_cache(inputs: Any) -> Cache | None:
    return next((value for value in inputs.values() if isinstance(value, Cache)), None)


def advance(cache: Cache, kinds: Sequence[str | None], batch: int, tokens: int) -> None:
    """Fill `cache` as if every layer had read `tokens` more tokens of `batch` texts.

    `kinds` are the configured layer types: linear-attention layers leave no keys in the cache.
    """
    own: Any = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    nothing = torch.zeros(batch, 1, tokens, 1, device="cpu")
    if own.layer_class_to_replicate is not None:
        for layer, kind in enumerate(kinds):
            if kind is None or not kind.startswith("linear"):
                own.update(nothing, nothing, layer)
        return
    grown: dict[int, Tensor] = {}
    for layer in own.layers:
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            layer.has_previous_state = dict.fromkeys(layer.has_previous_state, True)
        if type(layer) is DynamicLayer and layer.is_initialized:  # nothing but keys and values, which may be the same
            before = layer.get_seq_length()
            if before not in grown:
                grown[before] = torch.cat([layer.keys, nothing], dim=-2)
            layer.keys = layer.values = grown[before]
        elif isinstance(layer, CacheLayerMixin):
            layer.update(nothing, nothing)
        if hasattr(layer, "update_indexer"):
            layer.update_indexer(torch.zeros(batch, tokens, 1, device="cpu"))
