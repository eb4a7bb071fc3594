"""A plan in place: the model's own forward, `generate` and training loop run it unchanged.

Every visit is a clone of its block with its own cache slot (`layer_idx`). The first member of a group records its
input, later branches start from it, and the last returns the merge. In a sublayer's clone the other branch is zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.compiler import is_compiling

from layerwise.errors import ModelError
from layerwise.plan import Plan, Step
from layerwise.plan.quantized import refuse_quantized_layers
from layerwise.plan.sublayer import other_sublayer
from layerwise.stack.blocks import block_list
from layerwise.stack.branches import Pair
from layerwise.stack.executors import occupancy
from layerwise.stack.executors.caches import PlanCaches
from layerwise.stack.executors.clone import Then, clone, indices, own_indices, subclass
from layerwise.stack.executors.config_view import visit_order
from layerwise.stack.executors.entries import REFUSED_COPIES, entries, own_blocks
from layerwise.stack.executors.passes import Passes
from layerwise.stack.executors.state import returned_state, with_returned_state
from layerwise.stack.inputs import CACHES, on_device
from layerwise.stack.per_layer import per_layer_in_order

if TYPE_CHECKING:
    from layerwise.stack import Stack

# The attribute of a model's module that holds the passes it is in.
_PASSES = "_layerwise_passes"


@contextmanager
def in_place(
    stack: Stack,
    plan: Plan,
    pairs: Sequence[Pair] = (),
    *,
    single_pass: bool = False,
) -> Iterator[None]:
    """Within the context the model of `stack` runs `plan`; it is restored even if an exception is raised.

    Plans with sublayers need `pairs`. In a `single_pass` without caches, a layer visited once is the block itself.
    """
    model, path = stack.model, stack.path
    if model.training:
        refuse_quantized_layers(plan, "train (call model.eval() if nothing is to be trained)")
    blocks = block_list(model, path)
    steps = plan.steps()
    passes = Passes(steps, len(own_blocks(blocks)), PlanCaches(plan, len(own_blocks(blocks))))
    with ExitStack() as entered:
        entered.enter_context(occupancy.in_place(model, path, stack.source.name, plan))
        own = own_blocks(blocks)
        once = _visited_once(steps) if single_pass else frozenset()
        slots = Slots.of(model, path)
        listed = [
            own[step.layer]
            if slot in once
            else visit_entry(stack, step, slot, slots.shift(step.layer, slot), passes, pairs)
            for slot, step in enumerate(steps)
        ]
        for slot in once:
            counted = listed[slot].register_forward_hook(partial(_count_visit, passes, slot, listed[slot]))
            entered.callback(counted.remove)
        # Blocks entered as themselves share slots with the clones of others, and one that stands before its own
        # position would write behind the last slot: a model that was not told otherwise makes no cache.
        settings = {"use_cache": False} if single_pass else {}
        entered.enter_context(per_layer_in_order(model, path, plan.order()))
        entered.enter_context(visit_order(model, path, plan.order(), len(own), settings))
        if stack.device.type != "cpu":
            hook = model.register_forward_pre_hook(partial(_move_inputs, stack.device), with_kwargs=True)
            entered.callback(hook.remove)
        entered.enter_context(in_passes(runner_of(model, path), passes, single_pass))
        entered.enter_context(entries(blocks, listed, everyone=True, on_walk=passes.offer))
        entered.callback(passes.caches.close)
        entered.callback(passes.wait)
        yield


def _move_inputs(device: torch.device, module: nn.Module, args: Any, kwargs: Any) -> Any:
    return on_device((args, kwargs), device)


def _count_visit(passes: Passes, slot: int, block: nn.Module, called: nn.Module, *_: Any) -> None:
    if called is block:  # a clone of the block shares its hooks, and counts its own visit
        passes.visited(slot)


@contextmanager
def in_passes(runner: nn.Module, passes: Passes, single_pass: bool) -> Iterator[None]:
    kind = type(runner)
    vars(runner)[_PASSES] = passes, single_pass
    runner.__class__ = _running(cast(Hashable, kind))
    try:
        yield
    finally:
        runner.__class__ = kind
        del vars(runner)[_PASSES]


@cache
def _running(kind: Any) -> Any:
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if _PASSES not in vars(self):
            return kind.__call__(self, *args, **kwargs)
        passes, single_pass = vars(self)[_PASSES]
        if single_pass:
            _refuse_cache(kwargs)
        if is_compiling():
            passes.trace()
            return kind.__call__(self, *args, **kwargs)
        with passes.one(self):
            with passes.caches.checked((*args, *kwargs.values())):
                output = kind.__call__(self, *args, **kwargs)
            outputs = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple) else ()
            passes.caches.note((*args, *kwargs.values(), *outputs))
        return output

    return subclass(kind, {**REFUSED_COPIES, "__call__": __call__})


@contextmanager
def outside_passes(module: nn.Module) -> Iterator[None]:
    counted = vars(module).pop(_PASSES, None)
    try:
        yield
    finally:
        if counted is not None:
            vars(module)[_PASSES] = counted


def _refuse_cache(kwargs: Mapping[str, Any]) -> None:
    if kwargs.get("use_cache") or any(kwargs.get(name) is not None for name in CACHES):
        raise ModelError(
            "a cache of earlier tokens was asked for in a single pass, where layers have no slots of their own: enter "
            "`stack.under(plan)` without single_pass=True, or call generate(..., use_cache=False)"
        )


def runner_of(model: nn.Module, path: str) -> nn.Module:
    name = path
    while "." in name:
        name = name.rpartition(".")[0]
        module = model.get_submodule(name)
        if type(module).forward is not nn.Module.forward:
            return module
    return model


def visit_entry(stack: Stack, step: Step, slot: int, shift: int, passes: Passes, pairs: Sequence[Pair]) -> nn.Module:
    then: dict[str, Then] = {"": partial(passes.handed_on, slot, step)}
    if step.sublayer is not None:
        then[pairs[step.layer][other_sublayer(step.sublayer)]] = _silence
    host = None if step.source is None else stack.block(step.layer)
    return clone(stack.block(step.layer, step.source), shift, host, then)


def _silence(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    return with_returned_state(output, torch.zeros_like(returned_state(output)))


def _visited_once(steps: Sequence[Step]) -> frozenset[int]:
    times = Counter(step.layer for step in steps if step.source is None)
    return frozenset(
        slot
        for slot, step in enumerate(steps)
        if step.source is None and times[step.layer] == 1 and step.sublayer is None and not (step.opens or step.closes)
    )


@dataclass(frozen=True, slots=True)
class Slots:
    """The first cache slot of each block, how many a block owns, and the first slot that a visit may have."""

    first: Sequence[int]
    width: int
    start: int

    @classmethod
    def of(cls, model: nn.Module, path: str) -> Slots:
        """Read the slots of the blocks of `model` at `path`, by the positions that they and their submodules keep."""
        blocks = own_blocks(block_list(model, path))
        width = slots_per_block(blocks)
        numbers = [min(indices(block), default=layer * width) for layer, block in enumerate(blocks)]
        if len(blocks) > 1 and len(set(numbers)) == 1:
            return cls(range(len(blocks)), 1, 0)
        if any(number - numbers[0] != layer * width for layer, number in enumerate(numbers)):
            return cls(numbers, width, 0)  # a list that was put together by hand
        inside = {id(module) for block in blocks for module in block.modules()}
        taken = any(own_indices(module) for module in model.modules() if id(module) not in inside)
        named = any("layer_idx" in vars(module) for module in blocks[0].modules())
        return cls(numbers, width, 0 if named and not taken else numbers[0])

    def shift(self, layer: int, slot: int) -> int:
        """Return how far the visit at `slot` is from the slots that the block of `layer` keeps."""
        return self.start + slot * self.width - self.first[layer]


def slots_per_block(blocks: Sequence[nn.Module]) -> int:
    numbers = [own for block in blocks if (own := indices(block))]
    if len({min(own) for own in numbers}) < 2:
        return 1
    widths = {max(own) - min(own) + 1 for own in numbers}
    return widths.pop() if len(widths) == 1 else max(1, min(numbers[1]) - min(numbers[0]))
