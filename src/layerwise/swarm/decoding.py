"""Text from a model whose layers are elsewhere: the loop of `generate`, one asynchronous pass a token.

What `generate` prepares (processors of logits, criteria to stop, settings of the model) is taken from `generate`
itself, so that tokens are those that it would choose. What is left is the loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache

from layerwise.errors import SwarmError
from layerwise.stack import Capture, Stack
from layerwise.swarm.positions import advance, find_cache
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.router import Router


@dataclass
class _Prepared:
    """What `generate` has made ready before its own loop."""

    ids: Tensor
    processors: Any
    criteria: Any
    config: Any
    inputs: dict[str, Any]


def prepared(stack: Stack, ids: Tensor, options: dict[str, Any]) -> _Prepared:
    """What `model.generate(ids, **options)` would begin with. Raises `SwarmError` for a search with beams."""
    model: Any = stack.model

    def take(model: Any, input_ids: Tensor, **given: Any) -> _Prepared:
        processors, criteria = given.pop("logits_processor"), given.pop("stopping_criteria")
        config = given.pop("generation_config")
        given.pop("synced_gpus", None)
        given.pop("streamer", None)
        return _Prepared(input_ids, processors, criteria, config, given)

    if options.get("num_beams", 1) != 1:
        raise SwarmError("a swarm does not search with beams: leave out num_beams, or run the model in one process")
    made: Any = model.generate(ids, custom_generate=take, **options)
    return made


async def decode(
    router: Router,
    session: SwarmRequest,
    stack: Stack,
    ids: Tensor,
    generator: torch.Generator | None = None,
    **options: Any,
) -> AsyncGenerator[Tensor, None]:
    """The new tokens of `model.generate(ids, **options)`, `(batch,)` at a time, run by the nodes of `router`.

    Sampling draws from `generator`, or like `generate` from torch's own.
    """
    model: Any = stack.model
    ready = prepared(stack, ids, options)
    ids, inputs = ready.ids, ready.inputs
    cache = find_cache(inputs)
    unfinished = torch.ones(ids.shape[0], dtype=torch.long, device=ids.device)
    padding = ready.config._pad_token_tensor
    ends = any(hasattr(criterion, "eos_token_id") for criterion in ready.criteria)
    kinds = getattr(stack.text_config, "layer_types", None) or [None] * stack.depth
    first = True
    while unfinished.any():
        with torch.inference_mode():
            length = None if first or cache is None else 1
            given = model.prepare_inputs_for_generation(
                ids, next_sequence_length=length, is_first_iteration=first, **inputs
            )
            captured = stack.capture_pass({**given, "return_dict": True})
        session.recapture = _recapture(stack, ready, ids, inputs)
        if cache is None:
            session.begin_again()
        state = await router.forward(session, captured)
        with torch.inference_mode():
            outputs = stack.finish_pass(state, captured.inputs)
            inputs = model._update_model_kwargs_for_generation(outputs, inputs, is_encoder_decoder=False)
            cache = find_cache(inputs)
            if cache is not None:
                advance(cache, kinds, state.shape[0], state.shape[1])
            chosen = _chosen(ready, ids, outputs.logits[:, -1], generator)
            if ends:
                chosen = chosen * unfinished + padding.to(ids.device) * (1 - unfinished)
            ids = torch.cat([ids, chosen[:, None]], dim=-1)
            unfinished = unfinished & ~ready.criteria(ids, None)
        first = False
        session.tokens += 1
        yield chosen


def _chosen(ready: _Prepared, ids: Tensor, logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """The next token of every text."""
    scores = ready.processors(ids, logits.to(copy=True, dtype=torch.float32, device=ids.device))
    if not ready.config.do_sample:
        return torch.argmax(scores, dim=-1)
    chances = torch.softmax(scores, dim=-1)
    return torch.multinomial(chances, num_samples=1, generator=generator).squeeze(1)


def _recapture(stack: Stack, ready: _Prepared, ids: Tensor, inputs: dict[str, Any]) -> Any:
    """How to make one pass of all tokens so far, with an empty cache."""
    model: Any = stack.model

    def recapture() -> Capture:
        fresh = dict(inputs)
        for name, value in inputs.items():
            if isinstance(value, Cache):
                config = model.config.get_text_config(decoder=True)
                kind: Any = type(value)
                fresh[name] = DynamicCache(config=config) if kind is DynamicCache else kind()
        for name in ("position_ids", "cache_position"):
            fresh.pop(name, None)
        with torch.inference_mode():
            given = model.prepare_inputs_for_generation(ids, is_first_iteration=True, **fresh)
            return stack.capture_pass({**given, "return_dict": True})

    return recapture
