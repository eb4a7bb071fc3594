"""Run a plan in place, that is, in the model's own forward, `generate` and training loop.

For every visit of a layer, its block is cloned and gets a cache slot (`layer_idx`). The first branch of a group records
its input, later branches start from it, and the last one returns the merged state. In the clone for one sublayer, the
output of the other sublayer is zero.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.compiler import is_compiling

from layerwise.errors import ModelError
from layerwise.plan import Plan, Step
from layerwise.plan.checks import other_sublayer, refuse_quantized_layers
from layerwise.plan.config_order import COUNTS
from layerwise.stack.blocks import block_list
from layerwise.stack.branches import Pair
from layerwise.stack.executors import occupancy
from layerwise.stack.executors.caches import PlanCaches
from layerwise.stack.executors.capture import Merger, follow, read_state, returned_state, with_returned_state
from layerwise.stack.executors.clone import Then, clone, indices, own_indices, subclass
from layerwise.stack.executors.config_view import visit_order
from layerwise.stack.executors.entries import REFUSED_COPIES, entries, own_blocks
from layerwise.stack.inputs import CACHES, on_device
from layerwise.stack.per_layer import per_layer_in_order

if TYPE_CHECKING:
    from layerwise.stack import Stack

# Attribute of a module with its forward passes.
_PASSES = "_layerwise_passes"


@contextmanager
def in_place(
    stack: Stack,
    plan: Plan,
    pairs: Sequence[Pair] = (),
    *,
    single_pass: bool = False,
) -> Iterator[None]:
    """Make the model of `stack` run `plan`, and restore it on exit, even if an exception is raised.

    `pairs` are the sublayers of each layer, if the plan has any. If `single_pass`, layers visited once are not cloned.
    """
    model, path = stack.model, stack.path
    if model.training:
        refuse_quantized_layers(plan, "train (or call model.eval())")
    blocks = block_list(model, path)
    steps = plan.steps()
    passes = Passes(steps, len(own_blocks(blocks)), PlanCaches(plan, len(own_blocks(blocks))))
    with ExitStack() as entered:
        entered.enter_context(occupancy.in_place(model, path, stack.source.name, plan))
        own = own_blocks(blocks)
        single = _visited_once(steps) if single_pass else frozenset()
        slots = Slots.of(model, path)
        listed = [
            own[step.layer]
            if slot in single
            else visit_entry(stack, step, slot, slots.shift(step.layer, slot), passes, pairs)
            for slot, step in enumerate(steps)
        ]
        for slot in single:
            counted = listed[slot].register_forward_hook(partial(_count_visit, passes, slot, listed[slot]))
            entered.callback(counted.remove)
        # Blocks used directly keep their own cache slots, which may clash with those of clones.
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
    if called is block:  # a clone shares the hooks, but counts its own visit
        passes.visited(slot)


@contextmanager
def in_passes(runner: nn.Module, passes: Passes, single_pass: bool) -> Iterator[None]:
    kind = type(runner)
    vars(runner)[_PASSES] = passes, single_pass
    runner.__class__ = _counting_class(cast(Hashable, kind))
    try:
        yield
    finally:
        runner.__class__ = kind
        del vars(runner)[_PASSES]


@cache
def _counting_class(kind: Any) -> Any:
    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
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

    return subclass(kind, {**REFUSED_COPIES, "__call__": call})


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
            "caches are not supported with single_pass=True; enter `stack.under(plan)` without it, or call "
            "generate(..., use_cache=False)"
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
    then: dict[str, Then] = {"": partial(passes.merge_output, slot, step)}
    if step.sublayer is not None:
        then[pairs[step.layer][other_sublayer(step.sublayer)]] = _zero_output
    host = None if step.source is None else stack.block(step.layer)
    return clone(stack.block(step.layer, step.source), shift, host, then)


def _zero_output(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
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
    """Cache slots of a model: the first slot of each block, and how many slots a block has (`width`).

    `start` is the first slot of the plan that runs.
    """

    first: Sequence[int]
    width: int
    start: int

    @classmethod
    def of(cls, model: nn.Module, path: str) -> Slots:
        blocks = own_blocks(block_list(model, path))
        width = slots_per_block(blocks)
        numbers = [min(indices(block), default=layer * width) for layer, block in enumerate(blocks)]
        if len(blocks) > 1 and len(set(numbers)) == 1:
            return cls(range(len(blocks)), 1, 0)
        if any(number - numbers[0] != layer * width for layer, number in enumerate(numbers)):
            return cls(numbers, width, 0)  # a manually assembled list
        inside = {id(module) for block in blocks for module in block.modules()}
        taken = any(own_indices(module) for module in model.modules() if id(module) not in inside)
        has_index = any("layer_idx" in vars(module) for module in blocks[0].modules())
        return cls(numbers, width, 0 if has_index and not taken else numbers[0])

    def shift(self, layer: int, slot: int) -> int:
        return self.start + slot * self.width - self.first[layer]


def slots_per_block(blocks: Sequence[nn.Module]) -> int:
    numbers = [own for block in blocks if (own := indices(block))]
    if len({min(own) for own in numbers}) < 2:
        return 1
    widths = {max(own) - min(own) + 1 for own in numbers}
    return widths.pop() if len(widths) == 1 else max(1, min(numbers[1]) - min(numbers[0]))


@dataclass(slots=True)
class _Pass:
    executed: int = 0
    following: int = 0
    offered: int = 0  # entries of the list that the model requested
    is_in_order: bool = True
    groups: list[Merger] = field(default_factory=list)


class Passes:
    """Checks that the forward passes in each thread run the plan.

    A pass that `torch.compile` traces is not checked.
    """

    def __init__(self, steps: Sequence[Step], depth: int, caches: PlanCaches) -> None:
        self.steps = steps
        self.depth = depth
        self.caches = caches
        self._local = threading.local()
        self._changed = threading.Condition()
        self._in_flight = 0
        self._traced: _Pass | None = None

    @contextmanager
    def one(self, runner: nn.Module) -> Iterator[None]:
        """Check a forward pass of `runner` in the calling thread.

        Raises `ModelError` unless the pass runs the plan. Layers may be skipped by layer drop or an early exit.
        """
        outer = self._current_pass()
        self._local.now = mine = _Pass()
        self._count(+1)
        try:
            yield
        finally:
            self._local.now = outer
            self._count(-1)
        if mine.groups:
            raise self._cut_group(mine.following)
        planned = len(self.steps)
        ran = f"the model ran {mine.executed} of the {planned} steps of the plan"
        if not mine.offered or not (mine.is_in_order or mine.executed == planned):
            raise ModelError(f"{ran}: its forward does not iterate over its blocks, so it cannot run plans in place")
        # A forward that stops where the original model ends probably uses a fixed number of layers.
        if mine.executed == mine.following == self.depth < planned and not _stops_on_purpose(runner, mine, planned):
            raise ModelError(
                f"{ran}: its forward runs as many blocks as the original model has, regardless of its list of blocks, "
                "so it cannot run longer plans in place"
            )

    def trace(self) -> None:
        self._traced = _Pass()

    def offer(self, count: int) -> None:
        now = self._current_pass()
        if now is not None:
            now.offered = max(now.offered, count)

    def visited(self, slot: int) -> None:
        """Record that the step at `slot` ran, unless it ran out of order or outside a forward pass.

        Raises `ModelError` if the model skipped only a part of a parallel group.
        """
        now = self._current_pass()
        if now is None:
            return
        if slot < now.following:
            now.is_in_order = False
            return
        skipped = self.steps[now.following : slot]
        opened = sum(step.opens for step in skipped)
        closed = sum(close is not None for step in skipped for close in step.closes)
        if skipped and (now.groups or opened != closed):
            raise self._cut_group(now.following)
        now.executed, now.following = now.executed + 1, slot + 1

    def _cut_group(self, slot: int) -> ModelError:
        return ModelError(
            f"the model skipped layer {self.steps[slot].name} in a parallel group, whose merge needs every branch; "
            "turn off layer drop (model.eval()), exit after the group, or run a plan without groups"
        )

    def merge_output(self, slot: int, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Replace the state in the output of the step at `slot` by the input of the next step.

        Raises `ModelError` if a branch of a group is called outside a forward pass.
        """
        self.visited(slot)
        if not (step.opens or step.closes):
            return output
        now = self._current_pass()
        if now is None:
            raise ModelError(
                f"layer {step.name} in a parallel group was called outside a forward pass of its model; call the "
                "model, or call the layer outside `with stack.under(...)`"
            )
        state = follow(step, read_state(args, kwargs), returned_state(output), now.groups)
        return with_returned_state(output, state)

    def wait(self) -> None:
        with self._changed:
            mine = 0 if self._current_pass() is None else 1
            self._changed.wait_for(lambda: self._in_flight <= mine)

    def _current_pass(self) -> _Pass | None:
        return self._traced if is_compiling() else getattr(self._local, "now", None)

    def _count(self, change: int) -> None:
        with self._changed:
            self._in_flight += change
            self._changed.notify_all()


def _stops_on_purpose(runner: nn.Module, mine: _Pass, planned: int) -> bool:
    config = getattr(runner, "config", None)
    drops_layers = runner.training and mine.offered == planned
    return drops_layers or any(getattr(config, name, None) == mine.executed for name in COUNTS)
