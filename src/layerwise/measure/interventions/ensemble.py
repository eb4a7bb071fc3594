"""Ensembles: several models on the same input, their logits averaged (Hansen & Salamon 1990).

    logits(x) = 1/K * sum_k logits_k(x)

The mean of logits, as in Freiberger et al. 2024 (section 4.4), not of probabilities: a confident member counts more.
An ensemble costs K models; a merged model, whose layers they lent, costs one.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from layerwise.errors import ModelError


def mean_logits(logits: Iterable[Tensor]) -> Tensor:
    """The mean of the logits of several models, folded in one at a time; same shape as each, float32 or wider.

    >>> mean_logits([torch.tensor([1.0, 3.0]), torch.tensor([3.0, 5.0])]).tolist()
    [2.0, 4.0]

    Raises `ModelError` when there are none, or when they are of different shapes.
    """
    total: Tensor | None = None
    count = 0
    for each in logits:
        wide = each.to(torch.promote_types(each.dtype, torch.float32))
        if total is not None and total.shape != wide.shape:
            raise ModelError(
                f"an ensemble averages logits of one shape; found {tuple(wide.shape)} after {tuple(total.shape)}: "
                "its members must distinguish the same classes"
            )
        total = wide if total is None else total + wide
        count += 1
    if total is None:
        raise ModelError("an ensemble has one member or more; found none")
    return total / count
