"""What self-speculation takes beside plain generation: the seconds of both on one prompt, in turns.

A token that is generated costs more than the pass that it takes: logits are processed, stopping is decided. Drafts are
therefore compared with generation and not with a pass; the ratio carries over to the milliseconds of a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from layerwise.measure.cost.pass_time import PassClock
from layerwise.stack.inputs import evaluating
from layerwise.stack.speculation import Speculation

REPEATS = 2
"""Times that each way generates in one round, of which the fastest counts."""


def generation_ratio(draft: Speculation, prompts: Sequence[Tensor], new_tokens: int, number: int) -> float:
    """Seconds of greedy decoding with the draft over those without: on one of `prompts`, (1, length) each.

    The `number` of a round says which prompt, and which of both begins.
    """
    ids = prompts[number % len(prompts)].to(draft.stack.device)
    ways: list[dict[str, Any]] = [{}, {"custom_generate": draft}]
    seconds: list[list[float]] = [[], []]
    for turn in range(number, number + 2 * REPEATS):
        seconds[turn % 2].append(_seconds(draft, ids, new_tokens, ways[turn % 2]))
    plain, drafted = (min(times) for times in seconds)
    return drafted / plain


def _seconds(draft: Speculation, ids: Tensor, new_tokens: int, way: dict[str, Any]) -> float:
    model: Any = draft.stack.model
    clock = PassClock(draft.stack.device)
    padding = next(
        (i for i in (model.generation_config.pad_token_id, model.generation_config.eos_token_id) if isinstance(i, int)),
        0,
    )
    with evaluating(model), torch.no_grad():
        return clock.seconds(
            lambda: model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False,
                pad_token_id=padding, **way,
            )
        )  # fmt: skip
