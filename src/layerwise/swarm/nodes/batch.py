"""Hops of several requests as one batch: every block runs once, on the states of all of them.

Keys and values of shorter texts are padded on the left and masked, as `generate` does. States differ from those of the
request alone by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from layerwise.swarm.messages import Hop, Message, Pass
from layerwise.swarm.wire import decoded, read_call, to_tensor

MASK = "attention_mask"
"""The keyword of a mask in the blocks of transformers; it is `None` where a text sees all that was before it."""

Kind: TypeAlias = tuple[object, ...]


def batches(messages: Sequence[Message]) -> list[list[int]]:
    """The positions of the messages that may run together: hops of different requests through the same visits, each by
    one token, whose blocks are called alike. Any other message stands alone."""
    kinds: dict[Kind, list[int]] = {}
    for position, message in enumerate(messages):
        kinds.setdefault(_kind(message) or (position,), []).append(position)
    groups: list[list[int]] = []
    for positions in kinds.values():
        distinct = {getattr(messages[position], "request", "") for position in positions}
        groups += [positions] if len(distinct) == len(positions) else [[position] for position in positions]
    return groups


def is_one_token(hop: Hop) -> bool:
    return hop.given.index > 0 and hop.given.state.shape[:-1] == (1, 1)


def _kind(message: Message) -> Kind | None:
    if not isinstance(message, Hop) or not is_one_token(message):
        return None
    return message.visits, message.given.calls


class Calls:
    """The calls of several passes as those of one batch: all say the same but for their tensors and caches.

    A tensor is made once, however many layers use it.
    """

    def __init__(self, passes: Sequence[Pass], device: torch.device | str) -> None:
        self._passes, self._device = passes, device
        self._tensors: dict[int, Tensor] = {}
        self._made: dict[bytes, tuple[list[Any], dict[str, Any]]] = {}

    def of(
        self, visit: int, layer: int, caches: Sequence[Callable[[str], Any]]
    ) -> tuple[list[Any], dict[str, Any], int | str]:
        """The arguments of a visit, and the position or keyword of its state; `caches` make those of a class."""
        call = self._passes[0].calls[visit]
        form = read_call(call)
        if call not in self._made:
            self._made[call] = (
                [decoded(value, self._tensor) for value in form.args],
                {name: decoded(value, self._tensor) for name, value in form.kwargs.items()},
            )
        args, kwargs = self._made[call]
        args, kwargs = args.copy(), kwargs.copy()
        for key, kind in form.caches:
            several = [cache(kind) for cache in caches]
            cache = several[0] if len(several) == 1 else CacheBatch(several)
            if isinstance(key, int):
                args[key] = cache
            else:
                kwargs[key] = cache
            if isinstance(cache, CacheBatch) and kwargs.get(MASK, self) is None:
                kwargs[MASK] = cache.mask(layer, self._device)
        return args, kwargs, form.state

    def _tensor(self, index: int) -> Tensor:
        if index not in self._tensors:
            self._tensors[index] = batched([to_tensor(each.arrays[index]) for each in self._passes]).to(self._device)
        return self._tensors[index]


def batched(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one text each as that of a batch. What is as long as its text is padded on the left: a mask hides the
    padding."""
    first = tensors[0]
    if first.ndim < 2 or len(tensors) == 1:
        return first
    longest = max(each.shape[-1] for each in tensors)
    hidden = torch.finfo(first.dtype).min if first.is_floating_point() else 0
    padded = [
        torch.nn.functional.pad(each, (longest - each.shape[-1], 0), value=hidden) if each.shape[-1] < longest else each
        for each in tensors
    ]
    return torch.cat(padded)


class CacheBatch:
    """The caches of several requests, as the cache of a batch. It can be updated, and nothing else."""

    def __init__(self, caches: Sequence[Any]) -> None:
        self._caches = caches

    def update(self, keys: Tensor, values: Tensor, layer: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        several = [
            cache.update(keys[row : row + 1], values[row : row + 1], layer, *args, **kwargs)
            for row, cache in enumerate(self._caches)
        ]
        return _padded([each for each, _ in several]), _padded([each for _, each in several])

    def mask(self, layer: int, device: torch.device | str) -> Tensor | None:
        """What the token that is added next to each of the texts sees, `(batch, 1, 1, keys)`; `None` if all is seen."""
        lengths = torch.tensor([_length(cache, layer) + 1 for cache in self._caches], device=device)
        if bool((lengths == lengths[0]).all()):
            return None
        longest = int(lengths.max())
        return (torch.arange(longest, device=device) >= longest - lengths[:, None])[:, None, None]


def _length(cache: Any, layer: int) -> int:
    keys = cache.layers[layer].keys if layer < len(cache.layers) else None
    return 0 if keys is None or not keys.numel() else int(keys.shape[-2])


def _padded(several: Sequence[Tensor]) -> Tensor:
    first, longest = several[0], max(each.shape[-2] for each in several)
    if all(each.shape[-2] == longest for each in several):
        return torch.cat(list(several))
    made = first.new_zeros(len(several), *first.shape[1:-2], longest, first.shape[-1])
    for row, each in enumerate(several):
        made[row, ..., longest - each.shape[-2] :, :] = each[0]
    return made
