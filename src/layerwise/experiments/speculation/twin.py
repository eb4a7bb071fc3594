"""A model of some of another's layers that has their very tensors: what transformers' own assistant drafts with."""

from __future__ import annotations

from typing import Any

import torch

from layerwise.checkpoint.write import assembled
from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack import Stack


def twin(stack: Stack, plan: Plan) -> Any:
    """A model of the plan beside that of `stack`, for `generate(assistant_model=...)`; no weight is copied.

    Raises `UnsupportedModel` for plans that no model of its own can hold: groups, halves, and layers that repeat.
    """
    steps = plan.steps()
    if len({step.layer for step in steps}) < len(steps) or any(step.sublayer or step.opens for step in steps):
        raise UnsupportedModel(f"an assistant is a model of its own, and {plan} is more than a row of distinct layers")
    made: Any = assembled(stack, plan)
    made.generation_config = type(made.generation_config).from_dict(made.generation_config.to_dict())
    own = dict(stack.model.named_buffers())
    prefix = f"{stack.path}."
    for name, buffer in list(made.named_buffers()):
        if buffer.device.type != "meta":
            continue
        source = name
        if name.startswith(prefix):
            slot, _, rest = name.removeprefix(prefix).partition(".")
            source = f"{prefix}{steps[int(slot)].layer}.{rest}"
        module, _, last = name.rpartition(".")
        made.get_submodule(module)._buffers[last] = own[source]
    if any(tensor.device == torch.device("meta") for tensor in (*made.parameters(), *made.buffers())):
        raise UnsupportedModel(f"{type(made).__name__} has tensors that its state dictionary does not name")
    return made
