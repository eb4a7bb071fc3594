"""From a plan to what is fused in it: found, laid out, proved; then put into the entries of the plan in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn

from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.plan.quantised import refuse_quantised_layers
from layerwise.stack.executors.entries import own_blocks
from layerwise.stack.executors.fused.execution import PreparedGroup
from layerwise.stack.executors.fused.groups import (
    SingleLayerGroup,
    refuse_unlike,
    single_layer_groups,
    unusual,
)
from layerwise.stack.executors.fused.layout import Siblings, components, joint, laid_out
from layerwise.stack.executors.fused.projections import projecting, sibling_projections
from layerwise.stack.executors.fused.proof import prove
from layerwise.stack.inputs import evaluating, example_inputs

if TYPE_CHECKING:
    from layerwise.stack import Stack


@dataclass
class Fusion:
    """What is known of a Stack's layers: the groups, by their members, that were proved to run as one, and each layer's
    linear layers that read one tensor, once they were looked for."""

    proved: set[tuple[tuple[str | None, int], ...]] = field(default_factory=set)
    siblings: Sequence[Siblings] | None = None


@contextmanager
def prepared_groups(stack: Stack, plan: Plan, stride: int) -> Iterator[list[PreparedGroup]]:
    """The groups of `plan`, ready to run as one within the context, in the order of execution.

    `stride` is the number of cache slots of a block. The parameters of the layers that the plan visits are views of one
    storage for each group, or layer, in the context, and its projections are fused; a layer whose parameters cannot
    move (quantised, compiled, read from the disk) stays as it is. Raises `UnsupportedModel`, with the reason and what
    to do instead, for a group that cannot run as one; see `groups` and `proof`. A group that was proved once for this
    Stack is not proved again.
    """
    refuse_quantised_layers(plan, "run groups and projections as one (fused)")
    groups = single_layer_groups(plan)
    for group in {group.members: group for group in groups}.values():
        refuse_unlike(stack, group)
    siblings = _siblings(stack)
    with ExitStack() as entered:
        united = components(frozenset(_locations(stack, group.members)) for group in groups)
        visited = {(step.source, step.layer) for step in plan.steps()}
        alone = set(_locations(stack, visited, movable=True)) - frozenset().union(*united)
        together = [sorted(each) for each in (*united, *(frozenset([each]) for each in sorted(alone)))]
        for locations in together:
            blocks = [_blocks(stack)[location] for location in locations]
            entered.enter_context(laid_out(blocks, siblings[locations[0]]))
        prepared = [_prepared(stack, group, siblings) for group in groups]
        for each in prepared:
            if each.group.members not in stack.fusion.proved:
                prove(stack, each, stride)
                stack.fusion.proved.add(each.group.members)
        for location in (each for locations in together for each in locations):
            _project(_blocks(stack)[location], siblings[location], entered)
        _lay_out_head(stack, entered)
        yield prepared


def _lay_out_head(stack: Stack, entered: ExitStack) -> None:
    """Let the matrix of the language-model head stand transposed, unless the model reads it as an embedding, too."""
    find = getattr(stack.model, "get_output_embeddings", None)
    head = None if find is None or stack.resident is not None else find()
    if type(head) is nn.Linear and unusual(head) is None:
        users = [name for name, each in stack.model.named_parameters(remove_duplicate=False) if each is head.weight]
        if len(users) == 1:
            entered.enter_context(laid_out([head]))


def _project(block: nn.Module, siblings: Siblings, entered: ExitStack) -> None:
    weights = joint([block])
    assert weights is not None, "one block's parameters are at equal steps"
    entered.enter_context(projecting(block, weights, siblings))


def _siblings(stack: Stack) -> list[Siblings]:
    """The projections that read one tensor, of every block at hand."""
    return [each for owner in (stack, *stack.sources.values()) for each in _own_siblings(owner)]


def _own_siblings(stack: Stack) -> Sequence[Siblings]:
    if stack.fusion.siblings is None:
        blocks = own_blocks(stack.blocks)
        inputs = None if stack.resident is not None else example_inputs(stack.model)
        siblings: Sequence[Siblings] = [()] * len(blocks)
        if inputs is not None:
            with evaluating(stack.model), torch.no_grad():
                captured = stack.capture(**inputs)
                siblings = sibling_projections(blocks, lambda: stack.run(Plan.identity(stack.depth), captured))
        stack.fusion.siblings = siblings
    return stack.fusion.siblings


def _is_movable(stack: Stack, block: nn.Module) -> bool:
    return stack.resident is None and unusual(block) is None


def _blocks(stack: Stack) -> list[nn.Module]:
    """All blocks at hand, in the order of the models."""
    return [block for each in (stack, *stack.sources.values()) for block in own_blocks(each.blocks)]


def _locations(stack: Stack, members: Iterable[tuple[str | None, int]], movable: bool = False) -> list[int]:
    """The number of each member's block among all blocks at hand, only of the `movable` ones if asked for these."""
    everything = _blocks(stack)
    blocks = [(source, stack.block(layer, source)) for source, layer in members]
    if movable:
        blocks = [
            (source, block)
            for source, block in blocks
            if _is_movable(stack if source is None else stack.sources[source], block)
        ]
    return [next(number for number, each in enumerate(everything) if each is block) for _, block in blocks]


def _prepared(stack: Stack, group: SingleLayerGroup, siblings: Sequence[Siblings]) -> PreparedGroup:
    locations = _locations(stack, group.members)
    visits = sorted(range(len(locations)), key=locations.__getitem__)
    blocks = [stack.block(group.steps[visit].layer, group.steps[visit].source) for visit in visits]
    if joint(blocks) is None:
        raise UnsupportedModel(
            f"the group {group} cannot be fused: its layers stand in other groups of the plan, or in it, in another "
            "arrangement, and weights are laid out once. Leave out fused=True, and it runs in turn"
        )
    order = [visits.index(visit) for visit in range(len(visits))]
    return PreparedGroup(group, blocks, order, siblings[locations[visits[0]]])
