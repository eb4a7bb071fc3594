"""A group as it runs: all members at the call of the first, and what each of them returned at its own call.

The model meets the members one after another, as it does when they run in turn: each keeps its hooks, its cache slot
and its place among the recorded states. Only the work is done at once. Members run in turn, each with its own weights,

- while gradients of their weights are recorded, and in training mode (dropout draws for each layer);
- in passes of more than `TOKENS` tokens, which keep the machine busy as they are, and whose activations would need the
  memory of all members at once;
- where something is hooked to the inside of a member, or to its input, such as the recording of attentions;
- once the weights of a member were replaced (moved to another device or dtype, adapted) inside the context.

The two agree up to rounding, so that which of them ran does not show.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.utils import output_capturing

from layerwise.stack.executors.clone import INDEX_NAMES, rebound
from layerwise.stack.executors.fused import cache
from layerwise.stack.executors.fused.batched_parameter import BatchedParameter, rows
from layerwise.stack.executors.fused.groups import SingleLayerGroup
from layerwise.stack.executors.fused.layout import Joint, Siblings, joint
from layerwise.stack.executors.fused.projections import TOKENS, batched_projections
from layerwise.stack.executors.state import read_state

if TYPE_CHECKING:
    from layerwise.stack import Stack

_RECORDER = "output_capturing_hook"
"""The name of the hooks by which transformers records hidden states and attentions; once there, they stay."""


@dataclass
class BatchedGroup:
    """The members of a group over their joint weights.

    `blocks` are in the order in which their weights stand, `slots` their cache slots; `siblings`, `shift` and `host`
    are those of `batched_block`.
    """

    blocks: Sequence[nn.Module]
    joint: Joint
    slots: Sequence[int]
    siblings: Siblings = ()
    shift: int = 0
    host: nn.Module | None = None
    _block: nn.Module = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._block = batched_block(self.blocks[0], self.joint, self.siblings, self.shift, self.host)

    def outputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """What each member's block returns for the call, in the order of `blocks`."""
        members = len(self.blocks)
        state = read_state(args, kwargs)
        batch = state.shape[0]

        def repeated(value: Any) -> Any:
            if value is state:
                return _repeated(state, members)
            if isinstance(value, Tensor):
                return _repeated(value, members) if _has_rows(value, batch) else value
            if isinstance(value, Cache):
                return cache.of_group(value, self.slots)
            if type(value) in (tuple, list):
                return type(value)(repeated(each) for each in value)
            return value

        with rows(members * batch):
            output = self._block(*map(repeated, args), **{name: repeated(each) for name, each in kwargs.items()})
        return [_row(output, member, members, batch) for member in range(members)]


def _repeated(tensor: Tensor, members: int) -> Tensor:
    return tensor.expand(members, *tensor.shape).reshape(members * tensor.shape[0], *tensor.shape[1:])


def _has_rows(tensor: Tensor, batch: int) -> bool:
    """Whether an argument beside the state has a row for each of the `batch`, or several (one a head).

    One row is for everybody, and is left to broadcast.
    """
    if tensor.dim() < 2 or tensor.shape[0] == 1:
        return False
    return tensor.shape[0] == batch or (tensor.dim() >= 3 and tensor.shape[0] % batch == 0)


def _row(output: Any, member: int, members: int, batch: int) -> Any:
    """What one member returned, out of what the block returned for all."""
    if isinstance(output, Tensor):
        return output.view(members, -1, *output.shape[1:])[member] if output.shape[0] == members * batch else output
    if type(output) in (tuple, list):
        return type(output)(_row(each, member, members, batch) for each in output)
    return output


@dataclass
class GroupInPlace:
    """A group under a plan in place: `forward(member)` stands for the forward of that member's visit."""

    group: BatchedGroup
    order: Sequence[int]
    """For each member in the order of the plan, its position in the order of the weights."""
    _watched: _Watched = field(init=False, repr=False)
    _local: threading.local = field(init=False, repr=False, default_factory=threading.local)

    def __post_init__(self) -> None:
        self._watched = _Watched.of(self.group)

    def forward(self, member: int, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What the member returns: computed with all others, at the call of the first, or by its `own` forward."""
        if member == 0:
            self._local.outputs = self.group.outputs(args, kwargs) if self._at_once(args, kwargs) else None
        outputs = getattr(self._local, "outputs", None)
        if outputs is None:
            return own(*args, **kwargs)
        position = self.order[member]
        output, outputs[position] = outputs[position], None
        return output

    def _at_once(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        state = read_state(args, kwargs)
        return state.numel() <= TOKENS * state.shape[-1] and self._watched.unchanged()


@dataclass(frozen=True)
class PreparedGroup:
    """A group whose members stand in one storage: their blocks in the order of their weights.

    `order` gives, for each member in the order of the plan, its position among the blocks.
    """

    group: SingleLayerGroup
    blocks: Sequence[nn.Module]
    order: Sequence[int]
    siblings: Siblings

    def layers(self) -> list[tuple[str | None, int]]:
        """The source and the number of each layer, each once, in the order of their weights."""
        return list(dict.fromkeys(self.group.members[visit] for visit in self._visits()))

    def _visits(self) -> list[int]:
        """The members in the order of their weights."""
        return sorted(range(len(self.order)), key=self.order.__getitem__)

    def install(self, stack: Stack, listed: Sequence[nn.Module], stride: int) -> None:
        """Let the entries of the group's members, among those `listed` of the plan in place, run as one."""
        first = self.group.first
        visits = self._visits()
        weights = joint(self.blocks)
        assert weights is not None, "the weights were laid out when the group was prepared"
        leading = self.group.steps[visits[0]]
        host = None if leading.source is None else stack.block(leading.layer)
        slots = [(first + visit) * stride for visit in visits]
        shift = slots[0] - leading.layer * stride
        batched = BatchedGroup(self.blocks, weights, slots, self.siblings, shift, host)
        running = GroupInPlace(batched, self.order)
        for member in range(len(self.order)):
            entry = listed[first + member]
            vars(entry)["forward"] = partial(running.forward, member, entry.forward)


@dataclass(slots=True)
class _Watched:
    """What must be as it was when the joint weights were taken, in lists that are compared in every pass."""

    parameters: list[tuple[dict[str, Any], str]]
    locations: list[int]
    modules: list[dict[str, Any]]
    submodules: list[dict[str, Any]]
    hooks: list[dict[Any, Any]]
    blocks: Sequence[nn.Module]

    @classmethod
    def of(cls, group: BatchedGroup) -> _Watched:
        parameters, modules, hooks = [], [], []
        for block in group.blocks:
            hooks.append(block._forward_pre_hooks)
            for path, module in block.named_modules():
                modules += [module._modules] * bool(module._modules)
                parameters += [
                    (module._parameters, name) for name, each in module._parameters.items() if each is not None
                ]
                if path:
                    hooks += [module._forward_hooks, module._forward_pre_hooks]
        locations = [held[name].data_ptr() for held, name in parameters]
        return cls(parameters, locations, modules, [dict(each) for each in modules], hooks, group.blocks)

    def unchanged(self) -> bool:
        """Whether the members may run as one: see the module."""
        if (any(self.hooks) and any(map(_acting, self.hooks))) or any(block.training for block in self.blocks):
            return False
        if [held[name].data_ptr() for held, name in self.parameters] != self.locations:
            return False
        if self.modules != self.submodules:
            return False
        return not (torch.is_grad_enabled() and any(held[name].requires_grad for held, name in self.parameters))


def _acting(hooks: Mapping[Any, Callable[..., Any]]) -> bool:
    """Whether any of the hooks does something now: those by which transformers records wait until they are asked."""
    return bool(hooks) and (
        bool(output_capturing._active_collector.get())
        or any(getattr(hook, "__name__", "") != _RECORDER for hook in hooks.values())
    )


_HOOKS = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks",
    "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


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
