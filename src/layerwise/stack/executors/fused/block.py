"""The block that runs for all members of a group: the first member's own forward, over parameters of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from layerwise.stack.executors.clone import INDEX_NAMES, rebound
from layerwise.stack.executors.fused.batched_parameter import BatchedParameter
from layerwise.stack.executors.fused.layout import Joint, Siblings
from layerwise.stack.executors.fused.projections import batched_projections

_HOOKS = (
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
)  # fmt: skip


def batched_block(
    block: nn.Module, joint: Joint, siblings: Siblings = (), shift: int = 0, host: nn.Module | None = None
) -> nn.Module:
    """A copy of `block` whose parameters are the `joint` ones; its cache slots are `shift` further on.

    It holds no weights, no hooks, and the buffers and settings of `block`. Its linear layers that are `siblings`
    compute as one. `host` is the block of the same layer in the model that runs it, where that is another model: its
    configuration is read instead.
    """
    made = _copy(block, {name: BatchedParameter(weights) for name, weights in joint.items()}, "", shift, host)
    batched_projections(made, joint, siblings)
    return made


def _copy(
    module: nn.Module, parameters: Mapping[str, BatchedParameter], before: str, shift: int, host: nn.Module | None
) -> nn.Module:
    made = object.__new__(type(module))
    state = dict(vars(module))
    state.update({name: type(state[name])() for name in _HOOKS if name in state})
    state.pop("forward", None)  # that of fused projections, over the weights of one member
    state["_parameters"] = {
        name: None if each is None else parameters[before + name] for name, each in module._parameters.items()
    }
    state["_modules"] = {
        name: None
        if each is None
        else _copy(each, parameters, f"{before}{name}.", shift, None if host is None else host.get_submodule(name))
        for name, each in module._modules.items()
    }
    vars(made).update({name: _own(name, value, module, made, shift, host) for name, value in state.items()})
    return made


def _own(name: str, value: Any, module: nn.Module, made: nn.Module, shift: int, host: nn.Module | None) -> Any:
    if name in INDEX_NAMES and type(value) is int:
        return value + shift
    if name == "config" and host is not None:
        return host.config
    return rebound(value, module, made)
