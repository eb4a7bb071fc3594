"""LAMB for pretraining, with its parameters in the two groups of the published recipe (You et al. 2020, algorithm 2).

LAMB scales Adam's update of every tensor so that its norm is a fixed share of the tensor's own. That suits matrices.
It does not suit what is small, or shared by all tokens: biases, norms, embeddings and the layer weights (one scalar for
each pair of layers, all zero but one when they begin) are updated by plain Adam, and do not decay.

The optimiser is `pytorch_optimizer`'s. Its weight decay is the paper's, a part of the update that the ratio scales.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytorch_optimizer import Lamb
from torch import nn

PLAIN = ("bias", "norm", "embedding", "scalars")
"""A parameter whose name holds one of these is updated by plain Adam, without decay."""


def parameter_groups(named: Iterable[tuple[str, nn.Parameter]], weight_decay: float) -> list[dict[str, Any]]:
    """The parameters that are learned, in two groups: those with decay and trust ratio, and those with neither."""
    learned = [(name, parameter) for name, parameter in named if parameter.requires_grad]
    return [
        {
            "params": [parameter for name, parameter in learned if not is_plain(name)],
            "weight_decay": weight_decay,
            "adam": False,
        },
        {
            "params": [parameter for name, parameter in learned if is_plain(name)],
            "weight_decay": 0.0,
            "adam": True,
        },
    ]


def is_plain(name: str) -> bool:
    """Whether the parameter of this name is updated by plain Adam.

    >>> is_plain("encoder.output_weights.scalars"), is_plain("encoder.layers.0.attention.value.weight")
    (True, False)
    """
    return any(part in word for word in name.lower().split(".") for part in PLAIN)


def lamb(
    named: Iterable[tuple[str, nn.Parameter]],
    *,
    learning_rate: float,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float,
) -> Lamb:
    """LAMB over `parameter_groups`, with decay inside the update.

    At step t (from 1) of a tensor w with gradient g, m and v the moments:

        m <- b1 m + (1 - b1) g        v <- b2 v + (1 - b2) g^2        u = m / (sqrt(v) + epsilon) + decay * w
        w <- w - rate / (1 - b1^t) * ratio * u        ratio = min(|w|, 10) / (|u| + epsilon), or 1 for plain Adam

    The library corrects the first moment for its bias and not the second, so the first updates are larger than Adam's
    textbook ones; the warm-up covers that.
    """
    groups = [group for group in parameter_groups(named, weight_decay) if group["params"]]
    return Lamb(groups, lr=learning_rate, betas=betas, eps=epsilon, weight_decouple=False)
