"""What comes behind the layers, a norm and a head, run once for the passes of several requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast

from layerwise.stack import Stack
from layerwise.swarm.trust import agree

MOST_TOGETHER = 64
"""Passes that are finished together: of a large vocabulary each has many logits."""

ROWS = 4
"""Rows are repeated up to a multiple of so many: MKL takes longer for two or three than for four."""

_CARRIED = {"logits", "past_key_values"}


@dataclass(frozen=True, slots=True)
class _Arrived:
    state: Tensor
    inputs: Mapping[str, Any]
    outputs: asyncio.Future[Any]


class BatchedHead:
    """Finishes passes of cached decoding. Those that arrive while others are at work are finished together, if the
    model returns the same for each of them as alone, up to rounding: that is tried once."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._arrived: list[_Arrived] = []
        self._agrees: bool | None = None

    async def outputs(self, state: Tensor, inputs: Mapping[str, Any]) -> Any:
        ids, cache = inputs.get("input_ids"), inputs.get("past_key_values")
        is_one_token = state.shape[:-1] == (1, 1) and ids is not None and ids.shape == (1, 1)
        if self._agrees is False or not is_one_token or not isinstance(cache, Cache):
            with torch.inference_mode():
                return self.stack.finish_pass(state, inputs)
        loop = asyncio.get_running_loop()
        if not self._arrived:
            loop.call_soon(self._finish)
        self._arrived.append(_Arrived(state, inputs, loop.create_future()))
        return await self._arrived[-1].outputs

    def _finish(self) -> None:
        arrived = [each for each in self._arrived if not each.outputs.done()]
        self._arrived = []
        for first in range(0, len(arrived), MOST_TOGETHER):
            together = arrived[first : first + MOST_TOGETHER]
            try:
                for each, outputs in zip(together, self._together(together), strict=True):
                    each.outputs.set_result(outputs)
            except Exception as error:  # a head may fail in any way; the requests are to hear of it
                for each in together:
                    each.outputs.set_exception(error)

    @torch.inference_mode()
    def _together(self, arrived: Sequence[_Arrived]) -> Sequence[Any]:
        if len(arrived) == 1 or self._agrees is False:
            return [self.stack.finish_pass(each.state, each.inputs) for each in arrived]
        if self._agrees is None:
            alone = [self.stack.finish_pass(each.state, each.inputs) for each in arrived]
            self._agrees = self._is_same(arrived, alone)
            return alone
        logits = self._logits(arrived)
        caches = (each.inputs["past_key_values"] for each in arrived)
        pairs = zip(logits, caches, strict=True)
        return [CausalLMOutputWithPast(logits=own, past_key_values=cache) for own, cache in pairs]

    def _logits(self, arrived: Sequence[_Arrived]) -> Sequence[Tensor]:
        rows = [*arrived, *[arrived[-1]] * (-len(arrived) % ROWS)]
        ids = torch.cat([each.inputs["input_ids"] for each in rows])
        given = {"input_ids": ids, "use_cache": False, "return_dict": True}
        state = torch.cat([each.state for each in rows])
        logits: Tensor = self.stack.finish_pass(state, given).logits
        return torch.split(logits[: len(arrived), -1:], 1)

    def _is_same(self, arrived: Sequence[_Arrived], alone: Sequence[Any]) -> bool:
        try:
            batched = self._logits(arrived)
        except Exception:  # a model may fail in any way without what it is called with otherwise
            return False
        for each, own, other in zip(arrived, alone, batched, strict=True):
            if set(own) - _CARRIED or own.get("past_key_values") is not each.inputs["past_key_values"]:
                return False
            if not agree(own.logits[:, -1:], other, 1):
                return False
        return True
