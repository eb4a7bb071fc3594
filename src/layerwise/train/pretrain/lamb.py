"""The LAMB optimizer (You et al. 2020, algorithm 2), with the parameter groups of LTG-BERT and ELC-BERT.

LAMB scales Adam's update of every matrix in proportion to the norm of the matrix. Biases, norms, embeddings and layer
weights are updated by plain Adam without weight decay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

ALGORITHM = "LAMB of arXiv 1904.00962, algorithm 2"
"""Name of the optimizer in training records."""

PLAIN = ("bias", "norm", "embedding", "scalars")
"""A parameter whose name contains one of these is updated by plain Adam without weight decay."""


class Lamb(torch.optim.Optimizer):
    """LAMB with bias correction. The trust ratio also scales the weight decay.

    At step t (from 1), for a tensor w with gradient g and moments m and v, which are initially 0:

        m <- b1 m + (1 - b1) g        v <- b2 v + (1 - b2) g^2
        u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon) + decay * w
        w <- w - rate * ratio * u        ratio = |w| / |u|

    Norms are Euclidean, over the full tensor. The ratio is 1 if either norm is 0, or if the group has no
    `trust_ratio`; the update is then that of AdamW. A tensor without a gradient does not change, and its t does not
    advance.

    References:
        You et al. 2020, arXiv 1904.00962, algorithm 2, with the identity for phi.
    """

    def __init__(
        self,
        named: Iterable[tuple[str, nn.Parameter]],
        *,
        learning_rate: float,
        betas: tuple[float, float],
        epsilon: float,
        weight_decay: float,
    ) -> None:
        learned = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        groups: list[dict[str, Any]] = [
            {
                "params": [parameter for name, parameter in learned if is_plain(name) == plain],
                "weight_decay": 0.0 if plain else weight_decay,
                "trust_ratio": not plain,
            }
            for plain in (False, True)
        ]
        defaults = {"lr": learning_rate, "betas": betas, "eps": epsilon}
        super().__init__([group for group in groups if group["params"]], defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0, device="cpu")
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        taken, (first, second) = state["step"].item(), group["betas"]
        state["exp_avg"].lerp_(gradient, 1 - first)
        state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        scale = (state["exp_avg_sq"] / (1 - second**taken)).sqrt_().add_(group["eps"])
        update = (state["exp_avg"] / (1 - first**taken)).div_(scale)
        if group["weight_decay"]:
            update.add_(parameter, alpha=group["weight_decay"])
        if group["trust_ratio"]:
            update.mul_(_trust_ratio(parameter, update))
        parameter.sub_(update, alpha=group["lr"])


def _trust_ratio(parameter: Tensor, update: Tensor) -> Tensor:
    norm, update_norm = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(update)
    return torch.where((norm > 0) & (update_norm > 0), norm / update_norm, 1.0)


def is_plain(name: str) -> bool:
    """Return True if a parameter is updated by plain Adam.

    >>> is_plain("encoder.output_weights.scalars"), is_plain("encoder.layers.0.attention.value.weight")
    (True, False)
    """
    return any(part in word for word in name.lower().split(".") for part in PLAIN)
