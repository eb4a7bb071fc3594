"""What a router reads: the state of a prompt where the candidates part, as its mean over tokens and its last token.

The pass ends there. It takes the layers that all candidates keep, on the prompt alone, and no head; where they keep
none, the embeddings of the tokens are read and the model is not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerwise.errors import ModelError
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.measure.stats.statistics import Numbers
from layerwise.stack import Stack
from layerwise.stack.executors.state import read_state
from layerwise.stack.inputs import accepted, evaluating

BATCH = 32
"""Prompts that run together."""


class _Reached(Exception):
    """Ends a pass that has arrived where the candidates part."""


def prompt_features(stack: Stack, prompts: Sequence[Sequence[int]], prefix: int) -> Numbers:
    """The state after the layers 0 to `prefix` - 1, or the token embeddings, of each prompt: (prompts, 2 * width).

    First the mean over tokens, then the last token. Raises `ModelError` while the model runs a plan.
    """
    if stack.running is not None:
        raise ModelError(f"the model runs {stack.running}: choose plans outside stack.under(...)")
    order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
    features: dict[int, Numbers] = {}
    # Embeddings are looked up; only layers can be in a mode of training.
    with evaluating(stack.model) if prefix else nullcontext(), torch.inference_mode():
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            states, mask = _states(stack, [prompts[row] for row in rows], prefix)
            weights = mask[..., None].to(states.dtype)
            mean = (states * weights).sum(dim=1) / weights.sum(dim=1)
            last = states[torch.arange(len(rows)), mask.sum(dim=1) - 1]
            features.update(zip(rows, exact_on_cpu(torch.cat([mean, last], dim=1)).numpy(), strict=True))
    return np.stack([features[row] for row in range(len(prompts))])


def _states(stack: Stack, prompts: Sequence[Sequence[int]], prefix: int) -> tuple[Tensor, Tensor]:
    """The states (batch, seq, width) of prompts side by side, padded on the right, and their mask (batch, seq)."""
    width = max(map(len, prompts))
    ids = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts], device=stack.device)
    mask = torch.tensor([[1] * len(prompt) + [0] * (width - len(prompt)) for prompt in prompts], device=stack.device)
    if not prefix:
        model: Any = stack.model
        return model.get_input_embeddings()(ids).float(), mask
    reached: list[Tensor] = []

    def stop(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        reached.append(read_state(args, kwargs))
        raise _Reached

    handle = stack.block(prefix).register_forward_pre_hook(stop, with_kwargs=True)
    try:
        with suppress(_Reached):
            stack.model(**accepted(stack.model, {"input_ids": ids, "attention_mask": mask}))
    finally:
        handle.remove()
    return reached[0].float(), mask
