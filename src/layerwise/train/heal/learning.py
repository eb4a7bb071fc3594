"""Which weights learn in a healing, and the model as it was before they did, without a second model in memory.

The teacher of a healing is the same stack in its own order, before healing. Adapters are switched off for it. Where
weights of the model itself learn (`full`, `tail`), a copy of those tensors, and of no others, is kept as they were,
and is put in their place while the teacher runs: 4 bytes a weight beside the 16 that its training takes (weight,
gradient, and two moments of AdamW).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.errors import TrainError
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating, example_inputs, main_tensor
from layerwise.train.heal.adapters import add_adapters
from layerwise.train.heal.options import TAIL_LAYERS, HealingOptions


class Learning:
    """The weights of a stack that learn, all others being frozen from now on.

    `handle` is peft's, where adapters learn. With a teacher, `before` says how the model is brought back for it.
    """

    def __init__(self, stack: Stack, options: HealingOptions) -> None:
        self.stack = stack
        self.plan = Plan.parse(options.plan)
        self.handle: Any = None
        if options.method == "lora":
            self.handle = add_adapters(stack, self.plan, options.rank)
        else:
            names = _in_full(stack, self.plan) if options.method == "full" else _in_tail(stack, self.plan)
            for name, parameter in stack.model.named_parameters():
                parameter.requires_grad_(name in names)
        copies = options.teacher == "self" and self.handle is None
        self._first = {name: weight.detach().clone() for name, weight in self.weights().items()} if copies else {}

    def weights(self) -> dict[str, nn.Parameter]:
        """The tensors that learn, by their names in the model."""
        named = self.stack.model.named_parameters()
        return {name: parameter for name, parameter in named if parameter.requires_grad}

    @contextmanager
    def before(self) -> Iterator[None]:
        """Within the context the model is what it was before healing; nothing may be learned meanwhile."""
        learned: dict[str, Tensor] = {}
        if self.handle is not None:
            self.handle.base_model.disable_adapter_layers()
        else:
            learned = self._exchange(self._first)
        try:
            yield
        finally:
            if self.handle is not None:
                self.handle.base_model.enable_adapter_layers()
            else:
                self._exchange(learned)

    def _exchange(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """Put `values` in the place of the tensors that learn; returns what was there."""
        taken = {}
        for name, weight in self.weights().items():
            taken[name] = weight.data
            weight.data = values[name].to(weight.device)
        return taken


def _in_full(stack: Stack, plan: Plan) -> set[str]:
    """All but the layers that the plan leaves out."""
    return {name for name, _ in stack.model.named_parameters() if _layer_of(stack, name) in (None, *plan.layers())}


def _in_tail(stack: Stack, plan: Plan) -> set[str]:
    """The last layers of the plan, and whatever a state passes through after the last layer."""
    last = list(dict.fromkeys(reversed([step.layer for step in plan.steps()])))[:TAIL_LAYERS]
    outside = {name: each for name, each in stack.model.named_parameters() if _layer_of(stack, name) is None}
    after = _after_layers(stack, outside)
    return after | {name for name, _ in stack.model.named_parameters() if _layer_of(stack, name) in last}


def _after_layers(stack: Stack, outside: dict[str, nn.Parameter]) -> set[str]:
    """The parameters among those `outside` the layers that act behind them: they have a gradient when all layers are
    passed by."""
    inputs = example_inputs(stack.model)
    if inputs is None:
        raise TrainError(
            f"{type(stack.model).__name__} takes inputs that layerwise cannot make up, so its head is not known; heal "
            "with --method lora or --method full"
        )
    with evaluating(stack.model):
        with torch.no_grad():
            captured = stack.capture(**inputs)
        output = main_tensor(stack.finish(captured.state.detach(), captured.inputs))
        gradients = torch.autograd.grad(output.float().square().sum(), list(outside.values()), allow_unused=True)
    return {name for name, gradient in zip(outside, gradients, strict=True) if gradient is not None}


def _layer_of(stack: Stack, name: str) -> int | None:
    """The layer that a parameter belongs to; `None` outside the layers."""
    prefix = f"{stack.path}."
    return int(name.removeprefix(prefix).split(".")[0]) if name.startswith(prefix) else None
