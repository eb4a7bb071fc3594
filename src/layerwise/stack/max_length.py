"""Find the maximum input length of a model, and whether it keeps packed texts apart, by observing it.

In RoBERTa, positions start after the padding row, so that a table of 514 rows is enough for only 512 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from layerwise.stack.configuration import text_config_of
from layerwise.stack.inputs import accepted, evaluating, main_tensor
from layerwise.stack.placement import device_of

_TOKENS = 7

_ROWS: WeakKeyDictionary[nn.Module, int | None] = WeakKeyDictionary()


def longest_input(model: nn.Module) -> int | None:
    """Return the maximum number of tokens, or None if neither the configuration nor a position table limits it."""
    text = text_config_of(model)
    if text is None:
        return None
    lengths = [getattr(text, name, None) for name in ("max_position_embeddings", "n_positions")]
    configured = next((each for each in lengths if isinstance(each, int) and each > 0), None)
    reads = getattr(model, "main_input_name", None) == "input_ids" and hasattr(text, "vocab_size")
    seen = _rows_for_positions(model, int(text.vocab_size)) if reads else None
    return min((each for each in (configured, seen) if each is not None), default=None)


def _rows_for_positions(model: nn.Module, vocabulary: int) -> int | None:
    if model not in _ROWS:
        _ROWS[model] = _count_rows(model, vocabulary)
    return _ROWS[model]


def _count_rows(model: nn.Module, vocabulary: int) -> int | None:
    device = next(model.parameters()).device
    # One repeated token, so that consecutive rows are positions; a small id may be padding.
    ids = torch.full((1, _TOKENS), vocabulary // 2, device=device)
    lookups = _Lookups()
    # A model may need other inputs; lookups before it fails count.
    with evaluating(model), torch.no_grad(), suppress(Exception), lookups:
        model(**accepted(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}))
    return min(lookups.limits, default=None)


class _Lookups(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is functional.embedding:
            self._note(*args[:2])
        return func(*args, **(kwargs or {}))

    def _note(self, rows: Tensor, table: Tensor) -> None:
        # The model may append padding (Longformer).
        positions = rows.reshape(-1, rows.shape[-1])[0, :_TOKENS] if rows.ndim else rows
        if positions.shape == (_TOKENS,) and bool((positions.diff() == 1).all()):
            self.limits.append(len(table) - int(positions[0]))


LENGTHS = (7, 9)
LEAK = 0.01
"""Maximum effect of a first text on a second one, relative to the effect if both were one text."""


def keeps_texts_apart(model: nn.Module) -> bool:
    vocabulary = text_config_of(model).vocab_size  # type: ignore[union-attr]
    ids = torch.randint(0, vocabulary, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(0), device="cpu")
    ids = ids.to(device_of(model))
    positions = torch.cat([torch.arange(length, device="cpu") for length in LENGTHS])[None].to(ids.device)
    with evaluating(model), torch.inference_mode():
        alone = main_tensor(model(**accepted(model, {"input_ids": ids[:, LENGTHS[0] :]})))
        joined = main_tensor(model(**accepted(model, {"input_ids": ids})))[:, LENGTHS[0] :]
        try:
            rows = main_tensor(model(**accepted(model, {"input_ids": ids, "position_ids": positions})))
        except TypeError:  # it takes no positions
            return False
    leak, full_effect = ((each - alone).abs().max() for each in (rows[:, LENGTHS[0] :], joined))
    return bool(leak <= LEAK * full_effect)
