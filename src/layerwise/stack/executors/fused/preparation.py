"""From a plan to its fused groups: found, laid out, proved; then put into the entries of the plan in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from torch import nn

from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack.executors.entries import own_blocks
from layerwise.stack.executors.fused.execution import BatchedGroup, GroupInPlace
from layerwise.stack.executors.fused.groups import SingleLayerGroup, refuse_unlike, single_layer_groups
from layerwise.stack.executors.fused.layout import components, joint, laid_out
from layerwise.stack.executors.fused.proof import Members, prove

if TYPE_CHECKING:
    from layerwise.stack.stack import Stack


@dataclass(frozen=True)
class PreparedGroup:
    """A group whose members stand in one storage: their blocks in the order of their weights.

    `order` gives, for each member in the order of the plan, its position among the blocks.
    """

    group: SingleLayerGroup
    blocks: Sequence[nn.Module]
    order: Sequence[int]

    def install(self, stack: Stack, listed: Sequence[nn.Module], stride: int) -> None:
        """Let the entries of the group's members, among those `listed` of the plan in place, run as one."""
        first = self.group.first
        visits = sorted(range(len(self.order)), key=self.order.__getitem__)
        weights = joint(self.blocks)
        assert weights is not None, "the weights were laid out when the group was prepared"
        leading = self.group.steps[visits[0]]
        host = None if leading.source is None else stack.block(leading.layer)
        slots = [(first + visit) * stride for visit in visits]
        batched = BatchedGroup(self.blocks, weights, slots, slots[0] - leading.layer * stride, host)
        running = GroupInPlace(batched, self.order)
        for member in range(len(self.order)):
            entry = listed[first + member]
            vars(entry)["forward"] = partial(running.forward, member, entry.forward)


@contextmanager
def prepared_groups(stack: Stack, plan: Plan, stride: int) -> Iterator[list[PreparedGroup]]:
    """The groups of `plan`, ready to run as one within the context, in the order of execution.

    `stride` is the number of cache slots of a block. The parameters of the members are views of one storage in the
    context. Raises `UnsupportedModel`, with the reason and what to do instead, for a group that cannot run as one; see
    `groups` and `proof`. A group that was proved once for this Stack is not proved again.
    """
    groups = single_layer_groups(plan)
    for group in {group.members: group for group in groups}.values():
        refuse_unlike(stack, group)
    with ExitStack() as layouts:
        for component in components(frozenset(_locations(stack, group)) for group in groups):
            layouts.enter_context(laid_out([_blocks(stack)[location] for location in sorted(component)]))
        prepared = [_prepared(stack, group) for group in groups]
        for each in prepared:
            if each.group.members not in stack.fused_groups:
                prove(stack, _members(each, stride))
                stack.fused_groups.add(each.group.members)
        yield prepared


def _blocks(stack: Stack) -> list[nn.Module]:
    """All blocks at hand, in the order of the models."""
    return [block for each in (stack, *stack.sources.values()) for block in own_blocks(each.blocks)]


def _locations(stack: Stack, group: SingleLayerGroup) -> list[int]:
    """The number of each member's block among all blocks at hand."""
    everything = _blocks(stack)
    members = [stack.block(layer, source) for source, layer in group.members]
    return [next(number for number, each in enumerate(everything) if each is member) for member in members]


def _prepared(stack: Stack, group: SingleLayerGroup) -> PreparedGroup:
    locations = _locations(stack, group)
    visits = sorted(range(len(locations)), key=locations.__getitem__)
    blocks = [stack.block(group.steps[visit].layer, group.steps[visit].source) for visit in visits]
    if joint(blocks) is None:
        raise UnsupportedModel(
            f"the group {group} cannot be fused: its layers stand in other groups of the plan, or in it, in another "
            "arrangement, and weights are laid out once. Leave out fused=True, and it runs in turn"
        )
    order = [visits.index(visit) for visit in range(len(visits))]
    return PreparedGroup(group, blocks, order)


def _members(prepared: PreparedGroup, stride: int) -> Members:
    """The group's layers, each once."""
    visits = sorted(range(len(prepared.order)), key=prepared.order.__getitem__)
    layers = list(dict.fromkeys(prepared.group.members[visit] for visit in visits))
    blocks = list({id(block): block for block in prepared.blocks}.values())
    weights = joint(blocks)
    assert weights is not None, "every second of equal steps, or all of them, are at equal steps"
    return Members(str(prepared.group), layers, blocks, weights, stride)
