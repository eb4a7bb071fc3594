"""LAMB for pretraining, with its parameters in the two groups of the published recipe (You et al. 2020, algorithm 2).

LAMB scales Adam's update of every tensor so that its norm is a fixed share of the tensor's own. That suits matrices.
What is small, or shared by all tokens (biases, norms, embeddings, layer weights), is updated by plain Adam and does not
decay. The scaling function of the weight norm is the identity, as in the training of LTG-BERT and ELC-BERT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.errors import TrainError

ALGORITHM = "LAMB of arXiv 1904.00962, algorithm 2"
"""The name of the optimizer in the record of a training."""

PLAIN = ("bias", "norm", "embedding", "scalars")
"""A parameter whose name holds one of these is updated by plain Adam, without decay."""


class Lamb(torch.optim.Optimizer):
    """LAMB with both moments corrected for their bias, and the decay inside what the trust ratio scales.

    At step t (from 1) of a tensor w with gradient g, m and v its moments, both 0 at first:

        m <- b1 m + (1 - b1) g        v <- b2 v + (1 - b2) g^2
        u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon) + decay * w
        w <- w - rate * ratio * u        ratio = |w| / |u|

    Norms are Euclidean, over the whole tensor. The ratio is 1 where either norm is 0, and in a group whose
    `trust_ratio` is false: the update is then Adam's (Kingma and Ba 2015, algorithm 1), with the decay, if any, of
    AdamW (Loshchilov and Hutter 2019). A tensor without a gradient stays as it is, and its t does not advance.

    A group may have its own `lr`, `betas`, `eps`, `weight_decay` and `trust_ratio`. Raises `TrainError` for settings
    that no training can have, and for sparse gradients.

    Source: You et al. 2020, arXiv 1904.00962, algorithm 2, with the identity for phi.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        trust_ratio: bool = True,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "trust_ratio": trust_ratio}
        super().__init__(params, defaults)
        for group in self.param_groups:
            _check(group)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every tensor that has a gradient; returns what `closure` returns, which is run first."""
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
        if gradient.is_sparse:
            raise TrainError(
                f"LAMB has met a sparse gradient of shape {tuple(gradient.shape)}, and needs whole ones; "
                "make the embedding with sparse=False"
            )
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
    norm, of_update = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(update)
    return torch.where((norm > 0) & (of_update > 0), norm / of_update, 1.0)


def _check(group: dict[str, Any]) -> None:
    for name, key in (("learning rate", "lr"), ("epsilon", "eps"), ("weight decay", "weight_decay")):
        if not 0 <= group[key] < float("inf"):
            raise TrainError(f"the {name} is {group[key]}; write a number from 0 on")
    if len(group["betas"]) != 2 or not all(0 <= beta < 1 for beta in group["betas"]):
        raise TrainError(f"the betas are {group['betas']}; write two numbers from 0 to below 1")


def parameter_groups(named: Iterable[tuple[str, nn.Parameter]], weight_decay: float) -> list[dict[str, Any]]:
    learned = [(name, parameter) for name, parameter in named if parameter.requires_grad]
    return [
        {
            "params": [parameter for name, parameter in learned if not is_plain(name)],
            "weight_decay": weight_decay,
            "trust_ratio": True,
        },
        {
            "params": [parameter for name, parameter in learned if is_plain(name)],
            "weight_decay": 0.0,
            "trust_ratio": False,
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
    groups = [group for group in parameter_groups(named, weight_decay) if group["params"]]
    return Lamb(groups, lr=learning_rate, betas=betas, eps=epsilon)
