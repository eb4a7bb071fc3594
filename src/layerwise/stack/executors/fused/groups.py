"""Which groups of a plan run as one, and why a group cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan, Reduction, Step
from layerwise.stack.checks.compatibility import traits
from layerwise.stack.executors.config_view import settings_of_layer

if TYPE_CHECKING:
    from layerwise.stack import Stack


@dataclass(frozen=True, slots=True)
class SingleLayerGroup:
    """A group each of whose branches is one whole layer: its steps, and the position of the first in the plan."""

    first: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"({'|'.join(step.name for step in self.steps)})"

    @property
    def members(self) -> tuple[tuple[str | None, int], ...]:
        """The source and the number of each member's layer."""
        return tuple((step.source, step.layer) for step in self.steps)


def single_layer_groups(plan: Plan) -> list[SingleLayerGroup]:
    """The groups of `plan`, in the order of execution, each of whose branches is one whole layer.

    Raises `UnsupportedModel`, naming the group, where a group has another branch: a half of a layer, several layers in
    a row, or a group of its own.

    >>> [str(group) for group in single_layer_groups(Plan.parse("0 (1|2|3)*2 4"))]
    ['(1|2|3)', '(1|2|3)']
    """
    steps = plan.steps()
    collected = []
    position = 0
    while position < len(steps):
        if not steps[position].opens:
            position += 1
            continue
        members = _members_from(steps, position)
        if members is None:
            raise UnsupportedModel(
                f"the group of {plan} that begins with layer {steps[position].name} cannot be fused: a fused group has "
                "branches of one whole layer each, as (4|5|6). Leave out fused=True, and its branches run in turn"
            )
        collected.append(SingleLayerGroup(position, members))
        position += len(members)
    return collected


def _members_from(steps: Sequence[Step], first: int) -> tuple[Step, ...] | None:
    """The steps of the group that opens at `first`, if each of its branches is one whole layer."""
    members: list[Step] = []
    for step in steps[first:]:
        begins = not members
        if step.opens != begins or len(step.closes) != 1 or step.sublayer is not None:
            return None
        members.append(step)
        if isinstance(step.closes[0], Reduction):
            return tuple(members)
    return None


def refuse_unlike(stack: Stack, group: SingleLayerGroup) -> None:
    """Raise `UnsupportedModel` with the reason where the layers of `group` are not built alike.

    Alike are layers of the same modules, with parameters of the same names, shapes and dtypes, with equal buffers and
    settings, and for which the configuration says the same (the kind of attention, say).
    """
    reason = _difference(stack, group)
    if reason is not None:
        raise UnsupportedModel(
            f"the group {group} cannot be fused: {reason}. Leave out fused=True, and it runs in turn"
        )


def _difference(stack: Stack, group: SingleLayerGroup) -> str | None:
    owners = [stack if step.source is None else stack.sources[step.source] for step in group.steps]
    if any(owner.resident is not None for owner in owners):
        return "its layers are read from the disk when they are needed, so they have no storage in common"
    blocks = [stack.block(step.layer, step.source) for step in group.steps]
    for step, block in zip(group.steps, blocks, strict=True):
        reason = unusual(block)
        if reason is not None:
            return f"layer {step.name} {reason}"
    settings = [
        settings_of_layer(owner.model, owner.path, step.layer, owner.depth)
        for owner, step in zip(owners, group.steps, strict=True)
    ]
    names = [step.name for step in group.steps]
    for name, block, setting in zip(names[1:], blocks[1:], settings[1:], strict=True):
        unlike = _unlike(blocks[0], block)
        if unlike is None and setting != settings[0]:
            unlike = "what the configuration says of them"
        if unlike is not None:
            return f"layers {names[0]} and {name} differ in {unlike}"
    return None


def unusual(block: nn.Module) -> str | None:
    """What hinders the parameters of a block from standing in a storage that they share; `None` if nothing does."""
    seen: set[int] = set()
    for name, parameter in block.named_parameters(remove_duplicate=False):
        if id(parameter) in seen:
            return f"uses one parameter under two names, {name} among them"
        seen.add(id(parameter))
        if type(parameter) is not nn.Parameter or not parameter.is_floating_point():
            return f"holds {name} as {type(parameter).__name__} of {parameter.dtype}, no plain floating-point parameter"
        if parameter.is_inference():
            return f"holds {name} as an inference tensor: load the model outside of torch.inference_mode()"
    for path, module in block.named_modules():
        if "forward" in vars(module):
            where = f" in {path}" if path else ""
            return f"has a replaced forward{where} (compiled, placed by accelerate, or fused already)"
    return None


def _unlike(one: nn.Module, other: nn.Module) -> str | None:
    """The first thing in which two blocks differ, beside the values of their parameters and their positions."""
    left, right = traits(one), traits(other)
    if [each for each in left.items() if not each[0][1]] != [each for each in right.items() if not each[0][1]]:
        return "their submodules"
    for path, name in {**left, **right}:
        own, twin = left.get((path, name)), right.get((path, name))
        if own != twin:
            where = f"{path}.{name}" if path else name
            is_tensor = isinstance(own, tuple) or isinstance(twin, tuple)
            return f"{where} (shape, dtype or device)" if is_tensor else f"{where}, {own} and {twin}"
    for name, buffer in one.named_buffers():
        twin = other.get_buffer(name)
        if buffer is not twin and not torch.equal(buffer, twin):
            return f"the buffer {name}"
    return None
