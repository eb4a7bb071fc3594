"""Text generation with a model whose layers run on nodes.

Logits processors, stopping criteria and settings come from `generate` itself. Keys and values stay on the nodes. The
model needs only the length of its cache, so `advance_cache` fills it with one zero per token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from transformers.modeling_outputs import CausalLMOutputWithPast

from layerwise.errors import SwarmError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import Capture, Stack
from layerwise.swarm.checks import sample_pass, smallest_inputs
from layerwise.swarm.messages import Release, RemoteLayer, RemoteVisit, Reply, RunLayers
from layerwise.swarm.nodes.node import Node, local_node
from layerwise.swarm.request import SwarmRequest, find_layers
from layerwise.swarm.router import Router
from layerwise.swarm.settings import Quorum, SwarmSettings
from layerwise.swarm.wire import agree, encode, to_tensor


@dataclass
class GenerationInputs:
    ids: Tensor
    processors: Any
    criteria: Any
    config: Any
    inputs: dict[str, Any]


def prepare_generation(stack: Stack, ids: Tensor, options: dict[str, Any]) -> GenerationInputs:
    """Prepare the inputs of `model.generate(ids, **options)`. Raises `SwarmError` for beam search."""
    model: Any = stack.model

    def take(model: Any, input_ids: Tensor, **given: Any) -> GenerationInputs:
        processors, criteria = given.pop("logits_processor"), given.pop("stopping_criteria")
        config = given.pop("generation_config")
        given.pop("synced_gpus", None)
        given.pop("streamer", None)
        return GenerationInputs(input_ids, processors, criteria, config, given)

    if options.get("num_beams", 1) != 1:
        raise SwarmError("A swarm does not support beam search. Omit num_beams or run the model in one process.")
    inputs: GenerationInputs = model.generate(ids, custom_generate=take, **options)
    return inputs


@dataclass
class CachedDecoding:
    """Records the calls of the layers in each decoding step. The nodes keep the keys and values."""

    stack: Stack
    ready: GenerationInputs
    is_first: bool = True

    def capture(self, ids: Tensor) -> Capture:
        length = None if self.is_first or find_cache(self.ready.inputs) is None else 1
        return self._captured(ids, self.ready.inputs, next_sequence_length=length, is_first_iteration=self.is_first)

    def update(self, outputs: Any, state: Tensor) -> None:
        model: Any = self.stack.model
        self.ready.inputs = model._update_model_kwargs_for_generation(
            outputs, self.ready.inputs, is_encoder_decoder=False
        )
        cache = find_cache(self.ready.inputs)
        if cache is not None:
            kinds = getattr(self.stack.text_config, "layer_types", None) or [None] * self.stack.depth
            advance_cache(cache, kinds, state.shape[0], state.shape[1])
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


def advance_cache(cache: Cache, kinds: Sequence[str | None], batch: int, tokens: int) -> None:
    """Fill `cache` as if every layer had read `tokens` more tokens of `batch` texts.

    `kinds` are the configured layer types. Linear-attention layers store no keys in the cache.
    """
    decoder_cache: Any = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    zeros = torch.zeros(batch, 1, tokens, 1, device="cpu")
    if decoder_cache.layer_class_to_replicate is not None:
        for layer, kind in enumerate(kinds):
            if kind is None or not kind.startswith("linear"):
                decoder_cache.update(zeros, zeros, layer)
        return
    grown: dict[int, Tensor] = {}
    for layer in decoder_cache.layers:
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            layer.has_previous_state = dict.fromkeys(layer.has_previous_state, True)
        if type(layer) is DynamicLayer and layer.is_initialized:  # keys and values may share one tensor
            before = layer.get_seq_length()
            if before not in grown:
                grown[before] = torch.cat([layer.keys, zeros], dim=-2)
            layer.keys = layer.values = grown[before]
        elif isinstance(layer, CacheLayerMixin):
            layer.update(zeros, zeros)
        if hasattr(layer, "update_indexer"):
            layer.update_indexer(torch.zeros(batch, tokens, 1, device="cpu"))


async def decode(
    router: Router,
    session: SwarmRequest,
    head: BatchedHead,
    ids: Tensor,
    draws: Callable[[int], torch.Generator] | None = None,
    **options: Any,
) -> AsyncGenerator[Tensor, None]:
    """Yield the tokens of `model.generate(ids, **options)`, each `(batch,)`, drawing token `n` with `draws(n)`."""
    decoding = CachedDecoding(head.stack, prepare_generation(head.stack, ids, options))
    ready, ids = decoding.ready, decoding.ready.ids
    unfinished = torch.ones(ids.shape[0], dtype=torch.long, device=ids.device)
    padding = ready.config._pad_token_tensor
    ends = any(hasattr(criterion, "eos_token_id") for criterion in ready.criteria)
    while unfinished.any():
        captured = decoding.capture(ids)
        session.recapture = partial(decoding.recapture, ids, ready.inputs)
        if captured.state.shape[-2] >= ids.shape[1]:  # also true of a model without a cache
            session.index = 0
        state = await router.forward(session, captured)
        outputs = await head.finish(state, captured.inputs)
        with torch.inference_mode():
            decoding.update(outputs, state)
            tokens = _choose_token(ready, ids, outputs.logits[:, -1], None if draws is None else draws(session.tokens))
            if ends:
                tokens = tokens * unfinished + padding.to(ids.device) * (1 - unfinished)
            ids = torch.cat([ids, tokens[:, None]], dim=-1)
            unfinished = unfinished & ~ready.criteria(ids, None)
        session.tokens += 1
        yield tokens


def _choose_token(ready: GenerationInputs, ids: Tensor, logits: Tensor, generator: torch.Generator | None) -> Tensor:
    scores = ready.processors(ids, logits.to(copy=True, dtype=torch.float32, device=ids.device))
    if not ready.config.do_sample:
        return torch.argmax(scores, dim=-1)
    chances = torch.softmax(scores, dim=-1)
    return torch.multinomial(chances, num_samples=1, generator=generator).squeeze(1)


MAX_BATCH = 64
"""Maximum number of passes per batch, which limits the memory for logits."""

ROW_MULTIPLE = 4
"""Batches are padded to a multiple of this many rows: MKL is slower with two or three rows than with four."""

_CARRIED = {"logits", "past_key_values"}


@dataclass(frozen=True, slots=True)
class _PendingPass:
    state: Tensor
    inputs: Mapping[str, Any]
    outputs: asyncio.Future[Any]


class BatchedHead:
    """Runs the final norm and the head of the model on the hidden states of several requests at once.

    The first batch is also computed request by request. If the results differ by more than rounding, requests are never
    batched.
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._arrived: list[_PendingPass] = []
        self._agrees: bool | None = None

    async def finish(self, state: Tensor, inputs: Mapping[str, Any]) -> Any:
        ids, cache = inputs.get("input_ids"), inputs.get("past_key_values")
        is_one_token = state.shape[:-1] == (1, 1) and ids is not None and ids.shape == (1, 1)
        if self._agrees is False or not is_one_token or not isinstance(cache, Cache):
            with torch.inference_mode():
                return self.stack.finish_pass(state, inputs)
        loop = asyncio.get_running_loop()
        if not self._arrived:
            loop.call_soon(self._finish)
        self._arrived.append(_PendingPass(state, inputs, loop.create_future()))
        return await self._arrived[-1].outputs

    def _finish(self) -> None:
        arrived = [each for each in self._arrived if not each.outputs.done()]
        self._arrived = []
        for first in range(0, len(arrived), MAX_BATCH):
            together = arrived[first : first + MAX_BATCH]
            try:
                for each, outputs in zip(together, self._run_together(together), strict=True):
                    each.outputs.set_result(outputs)
            except Exception as error:  # any error of the head belongs to the requests
                for each in together:
                    each.outputs.set_exception(error)

    @torch.inference_mode()
    def _run_together(self, arrived: Sequence[_PendingPass]) -> Sequence[Any]:
        if len(arrived) == 1 or self._agrees is False:
            return [self.stack.finish_pass(each.state, each.inputs) for each in arrived]
        if self._agrees is None:
            alone = [self.stack.finish_pass(each.state, each.inputs) for each in arrived]
            self._agrees = self._is_same(arrived, alone)
            return alone
        logits = self._compute_logits(arrived)
        caches = (each.inputs["past_key_values"] for each in arrived)
        pairs = zip(logits, caches, strict=True)
        return [CausalLMOutputWithPast(logits=each, past_key_values=cache) for each, cache in pairs]

    def _compute_logits(self, arrived: Sequence[_PendingPass]) -> Sequence[Tensor]:
        rows = [*arrived, *[arrived[-1]] * (-len(arrived) % ROW_MULTIPLE)]
        ids = torch.cat([each.inputs["input_ids"] for each in rows])
        given = {"input_ids": ids, "use_cache": False, "return_dict": True}
        state = torch.cat([each.state for each in rows])
        logits: Tensor = self.stack.finish_pass(state, given).logits
        return torch.split(logits[: len(arrived), -1:], 1)

    def _is_same(self, arrived: Sequence[_PendingPass], alone: Sequence[Any]) -> bool:
        try:
            together = self._compute_logits(arrived)
        except Exception:  # the model may need the inputs that a batch omits
            return False
        for each, single, batched in zip(arrived, alone, together, strict=True):
            if set(single) - _CARRIED or single.get("past_key_values") is not each.inputs["past_key_values"]:
                return False
            if not agree(single.logits[:, -1:], batched, 1):
                return False
        return True


@dataclass(frozen=True, slots=True)
class ServableModel:
    """Result of `check_servable`: a sample pass, a node with the router's own copy of the layers, and the quorum."""

    sample: Capture
    referee: Node
    quorum: Quorum


def check_servable(stack: Stack, plan: Plan, settings: SwarmSettings) -> ServableModel:
    """Check that the layers of a model can run on nodes, before any node starts.

    Raises:
        UnsupportedModelError: If the layers cannot run on nodes.
        SwarmError: If the plan has too few layers to ever meet the quorum.
    """
    layers = find_layers(plan)
    quorum = settings.resolve_quorum(len(layers))
    sample = sample_pass(stack, [layer.number for layer in layers])
    referee = local_node("router", stack, layers, sublayers=plan.has_sublayers())
    if generates_text(stack):
        check_split_passes(stack, referee)
    return ServableModel(sample, referee, quorum)


def generates_text(stack: Stack) -> bool:
    can_generate = getattr(stack.model, "can_generate", None)
    return can_generate is not None and bool(can_generate())


def check_split_passes(stack: Stack, node: Node) -> None:
    """Raise `UnsupportedModelError` if reading a text in two passes, with another text in between, changes the result.

    This happens if blocks keep state (RecurrentGemma) or if a token changes earlier positions (CPM-Ant).
    """
    ids = smallest_inputs(stack)["input_ids"]
    layers = [layer.number for layer in node.layers if not layer.source]
    visits = tuple(RemoteVisit(slot, RemoteLayer(layer)) for slot, layer in enumerate(layers))
    options = {"max_new_tokens": 2, "do_sample": False}

    def state(request: str, number: int, index: int, captured: Capture) -> Tensor:
        reply = node.handle(RunLayers(request, number, visits, encode(captured, layers, index)))
        if isinstance(reply, Reply):
            return to_tensor(reply.state)[:, -1]
        raise UnsupportedModelError(f"the layers of {type(stack.model).__name__} cannot run on a node: {reply}")

    one, other = (
        CachedDecoding(stack, prepare_generation(stack, each[:, :-1], options)) for each in (ids, ids.flip(1))
    )
    first = one.capture(ids[:, :-1])
    state("one", 0, 0, first)
    state("other", 0, 0, other.capture(ids.flip(1)[:, :-1]))
    with torch.inference_mode():
        one.update(stack.finish_pass(first.state, first.inputs), first.state)
    split = state("one", 1, 1, one.capture(ids))
    single = state("one", 2, 0, one.recapture(ids, one.ready.inputs))
    for request in ("one", "other"):
        node.handle(Release(request))
    if not agree(split, single, len(layers)):
        raise UnsupportedModelError(
            f"the hidden states of {type(stack.model).__name__} change if it reads a text in two passes, with another "
            "text in between, instead of in one pass. A swarm needs equal states, since it serves several requests "
            "at once and recomputes texts after a failure. Run the model in one process with `generate` instead."
        )
