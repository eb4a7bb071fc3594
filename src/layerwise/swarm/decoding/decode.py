"""Text from a model whose layers are elsewhere: the loop of `generate`, one asynchronous pass a token."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from layerwise.swarm.decoding.cached_decoding import CachedDecoding, Prepared, prepared
from layerwise.swarm.decoding.head import BatchedHead
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.router import Router


async def decode(
    router: Router,
    session: SwarmRequest,
    head: BatchedHead,
    ids: Tensor,
    draws: Callable[[int], torch.Generator] | None = None,
    **options: Any,
) -> AsyncGenerator[Tensor, None]:
    """Yield the new tokens of `model.generate(ids, **options)`, each `(batch,)`; `draws(n)` samples token `n`."""
    decoding = CachedDecoding(head.stack, prepared(head.stack, ids, options))
    ready, ids = decoding.ready, decoding.ready.ids
    unfinished = torch.ones(ids.shape[0], dtype=torch.long, device=ids.device)
    padding = ready.config._pad_token_tensor
    ends = any(hasattr(criterion, "eos_token_id") for criterion in ready.criteria)
    while unfinished.any():
        captured = decoding.capture(ids)
        session.recapture = partial(decoding.recapture, ids, ready.inputs)
        if captured.state.shape[-2] >= ids.shape[1]:  # also of a model that leaves its cache empty
            session.index = 0
        state = await router.forward(session, captured)
        outputs = await head.outputs(state, captured.inputs)
        with torch.inference_mode():
            decoding.passed(outputs, state)
            chosen = _chosen(ready, ids, outputs.logits[:, -1], None if draws is None else draws(session.tokens))
            if ends:
                chosen = chosen * unfinished + padding.to(ids.device) * (1 - unfinished)
            ids = torch.cat([ids, chosen[:, None]], dim=-1)
            unfinished = unfinished & ~ready.criteria(ids, None)
        session.tokens += 1
        yield chosen


def _chosen(ready: Prepared, ids: Tensor, logits: Tensor, generator: torch.Generator | None) -> Tensor:
    scores = ready.processors(ids, logits.to(copy=True, dtype=torch.float32, device=ids.device))
    if not ready.config.do_sample:
        return torch.argmax(scores, dim=-1)
    chances = torch.softmax(scores, dim=-1)
    return torch.multinomial(chances, num_samples=1, generator=generator).squeeze(1)
