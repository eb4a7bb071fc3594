"""Text from a model whose layers are elsewhere: the loop of `generate`, one asynchronous pass a token.

What `generate` prepares (processors of logits, criteria to stop, settings of the model) is taken from `generate`
itself, so that tokens are those that it would choose. What is left is the loop.

The keys and values of a request are where its layers are. The model around the layers needs only their number, for
positions and masks, and asks the cache for it. `advance` therefore fills the cache of `generate` with rows of one zero
a token.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    EncoderDecoderCache,
    LinearAttentionCacheLayerMixin,
)

from layerwise.errors import SwarmError
from layerwise.stack import Capture, Stack
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
    draws: Callable[[int], torch.Generator] | None = None,
    **options: Any,
) -> AsyncGenerator[Tensor, None]:
    """The new tokens of `model.generate(ids, **options)`, `(batch,)` at a time, run by the nodes of `router`.

    Sampling draws token `n` from `draws(n)`, or like `generate` from torch's own.
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
        session.recapture = _recapture(stack, ids, inputs)
        if cache is None:
            session.begin_again()
        state = await router.forward(session, captured)
        with torch.inference_mode():
            outputs = stack.finish_pass(state, captured.inputs)
            inputs = model._update_model_kwargs_for_generation(outputs, inputs, is_encoder_decoder=False)
            cache = find_cache(inputs)
            if cache is not None:
                advance(cache, kinds, state.shape[0], state.shape[1])
            chosen = _chosen(ready, ids, outputs.logits[:, -1], None if draws is None else draws(session.tokens))
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


def _recapture(stack: Stack, ids: Tensor, inputs: dict[str, Any]) -> Any:
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


REPLACEMENT = "�"
"""What a tokenizer writes for bytes that are no character, or not yet one."""

CONTEXT = (6, 7, 8, 9, 12, 16)
"""How many tokens of the prompt are decoded along with the first new one, since a tokenizer may drop the space before
the first token of a text: the least number that does not begin within a character."""


class TextStream:
    """Turns the new tokens of one answer into text, piece by piece: never half a character, nothing of a stop text.

    A character of UTF-8 takes up to four tokens, and a stop text may span several; so text is released as soon as it
    can no longer change, and no sooner. The pieces of `add`, one after another, and of `finish` at the end are the text
    of all new tokens, cut before the first stop text. `stopped` becomes true with the token that completes a stop text;
    nothing is released from then on. A character that the prompt begins and no token ends is left out. (`DecodeStream`
    of tokenizers fails on bytes that are no character.)
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._tokens = self._context(prompt)
        self._settled = len(self._tokens)
        text = self._text()
        self._before = text.rstrip(REPLACEMENT)
        self._is_torn = text != self._before
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """The text that is certain now that `token` is known: often one token's, sometimes none."""
        self._tokens.append(token)
        text = self._text()
        if text.endswith(REPLACEMENT) or len(text) <= len(self._before):
            return ""  # in the middle of a character, or a token without a text
        return self._released(self._settle(text))

    def finish(self) -> str:
        """The rest, when no token follows. A character that the last token leaves incomplete is left out."""
        released = self._released(self._settle(self._text().rstrip(REPLACEMENT)))
        rest = "" if self.stopped else self._held
        self._held = ""
        return released + rest

    def _settle(self, text: str) -> str:
        new = text[len(self._before) :]
        if self._is_torn:
            new = new.lstrip(REPLACEMENT)
            self._is_torn = not new
        self._tokens = self._tokens[self._settled :]
        self._settled = len(self._tokens)
        self._before = self._text()
        return new

    def _released(self, new: str) -> str:
        if self.stopped:
            return ""
        text = self._held + new
        starts = [at for each in self._stop if (at := text.find(each)) >= 0]
        if starts:
            self.stopped, self._held = True, ""
            return text[: min(starts)]
        keep = possible_stop(text, self._stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _context(self, prompt: Sequence[int]) -> list[int]:
        for count in CONTEXT:
            tokens = list(prompt[-count:])
            if not self._decode(tokens).startswith(REPLACEMENT):
                return tokens
        return []

    def _text(self) -> str:
        return self._decode(self._tokens)

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def possible_stop(text: str, stops: Sequence[str]) -> int:
    """The number of characters at the end of `text` that may be the beginning of a stop text.

    >>> possible_stop("one, tw", ("two", "wo")), possible_stop("one", ("two",))
    (2, 0)
    """
    longest = max((len(stop) for stop in stops), default=1) - 1
    for count in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-count:]) for stop in stops):
            return count
    return 0
