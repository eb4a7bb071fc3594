"""A plan in place: the model's own forward, `generate` and training loop run it unchanged.

Every visit of the plan is one entry of the model's list of blocks. It is a shallow twin of the block: it shares every
parameter and buffer, owns its cache slot (`layer_idx` is the visit's position, so slot 0 is always written), and owns
its hook dictionaries. Groups need no second mechanism: the first member notes the state it was given, each later branch
starts from the noted state, and the last member returns the merge, so the model's loop never knows. A half of a layer
is the twin with its other branch silenced, by a hook that is on no other visit of the block.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from layerwise.errors import ModelError
from layerwise.plan import Plan, Step
from layerwise.stack.blocks import block_list, entries
from layerwise.stack.branches import Branches, only
from layerwise.stack.state import Merger, follow, read_state, returned_state, with_returned_state
from layerwise.stack.view import visit_order

if TYPE_CHECKING:
    from layerwise.stack.stack import Stack

# The names under which submodules keep their position in the stack.
INDEX_NAMES = ("layer_idx", "layer_id", "layer_number", "layer_num")

_HOOKS = (
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
)  # fmt: skip


@dataclass(slots=True)
class Progress:
    """Where the forward pass in flight stands: its open groups, and how many visits have run."""

    planned: int
    executed: int = 0
    groups: list[Merger] = field(default_factory=list)

    def start(self, *_: Any) -> None:
        """Forget a pass that an exception may have cut short."""
        self.executed = 0
        self.groups.clear()

    def count(self, slot: int, *_: Any) -> None:
        """The visit at `slot` has run; out of its turn it does not count."""
        if slot == self.executed:
            self.executed += 1

    def finish(self, *_: Any) -> None:
        """Check that the model ran the plan, the whole plan and nothing else."""
        if self.executed != self.planned:
            raise ModelError(
                f"the model ran {self.executed} visits of a plan of {self.planned}: "
                "its forward does not walk its list of blocks, so it cannot run plans in place"
            )


@contextmanager
def in_place(
    stack: Stack, plan: Plan, branches: Branches | None = None, *, single_pass: bool = False
) -> Iterator[Progress]:
    """Within the context the model of `stack` runs `plan`; it is exactly as before afterwards, come what may.

    A plan with halves needs the `branches` of the blocks. In a `single_pass` no cache outlives a forward pass, so that
    a layer needs no slot of its own: one that is visited once, outside every group, is entered as the block itself.
    """
    model, path = stack.model, stack.path
    blocks = block_list(model, path)
    depth = len(blocks)
    steps = plan.steps()
    progress = Progress(len(steps))
    owner = model.get_submodule(path.rpartition(".")[0])
    own = _visited_once(steps) if single_pass else frozenset()
    stride = _slots_per_block(blocks) if len(own) < len(steps) else 1
    listed = [
        blocks[step.layer] if slot in own else _visit(stack, step, slot, (slot - step.layer) * stride, progress)
        for slot, step in enumerate(steps)
    ]
    hooks = [owner.register_forward_pre_hook(progress.start), owner.register_forward_hook(progress.finish)]
    hooks += [listed[slot].register_forward_hook(partial(progress.count, slot)) for slot in own]
    try:
        with ExitStack() as silence:
            for entry, step in zip(listed, steps, strict=True):
                if step.part is not None:
                    assert branches is not None, "whoever runs halves in place has found the branches"
                    silence.enter_context(only(entry, branches.paths[step.layer], step.part))
            if len(own) < len(steps):
                silence.enter_context(_recording_flags(model))
            if single_pass:
                silence.enter_context(_without_cache(owner))
            with visit_order(model, path, plan.order(), depth), entries(blocks, listed):
                yield progress
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _without_cache(owner: nn.Module) -> Iterator[None]:
    """Within the context a model that was not told otherwise makes no cache: blocks entered as themselves share slots
    with the twins of others, and one that stands before its own place would write behind the last slot.
    """
    settings = vars(getattr(owner, "config", None) or owner)
    cached = settings.get("use_cache")
    if not cached:
        yield
        return
    settings["use_cache"] = False
    try:
        yield
    finally:
        settings["use_cache"] = cached


@contextmanager
def _recording_flags(model: nn.Module) -> Iterator[None]:
    """Forget on exit that a model installed its recording hooks inside the context: they were installed on twins.

    Transformers installs the hooks behind `output_hidden_states=True` once, on first use, and notes that in a flag.
    """
    flag = "_output_capturing_hooks_installed"
    before = [(module, module.__dict__.get(flag, False)) for module in model.modules()]
    try:
        yield
    finally:
        for module, installed in before:
            if module.__dict__.get(flag, False) != installed:
                module.__dict__[flag] = installed


def _visit(stack: Stack, step: Step, slot: int, shift: int, progress: Progress) -> nn.Module:
    """The entry at `slot` of the list, which runs a block for one visit, `shift` cache slots away from its own."""
    twin = _twin(stack.block(step.layer, step.source), shift, host=stack.block(step.layer))

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        output = type(self).forward(self, *args, **kwargs)
        progress.count(slot)
        if not (step.opens or step.closes):
            return output
        state = follow(step, read_state(args, kwargs), returned_state(output), progress.groups)
        return with_returned_state(output, state)

    twin.__dict__["forward"] = types.MethodType(forward, twin)
    return twin


def _visited_once(steps: Sequence[Step]) -> frozenset[int]:
    """The places of the steps that run a whole layer, which no other step runs, outside the seams of groups.

    Layers of another model are not among them: its blocks hold its own configuration, which is not in visit order.
    """
    times = Counter(step.layer for step in steps if step.source is None)
    return frozenset(
        slot
        for slot, step in enumerate(steps)
        if step.source is None and times[step.layer] == 1 and step.part is None and not (step.opens or step.closes)
    )


def _slots_per_block(blocks: nn.ModuleList) -> int:
    """How many cache slots a block owns: one, except where a block holds several attentions that number on."""
    first = [min(_indices(block), default=0) for block in list(blocks)[:2]]
    return max(1, first[-1] - first[0])


def _indices(block: nn.Module) -> list[int]:
    found = (module.__dict__.get(name) for module in block.modules() for name in INDEX_NAMES)
    return [index for index in found if isinstance(index, int)]


def _twin(module: nn.Module, shift: int, host: nn.Module) -> nn.Module:
    """A shallow copy of `module` and everything in it for one visit: own hooks and index, shared tensors.

    `host` is the block of the same layer in the model that runs, whose configuration, in visit order, the copy reads.
    """
    twin = module.__class__.__new__(module.__class__)
    twin.__dict__.update(module.__dict__)
    for name in ("_parameters", "_buffers", *_HOOKS):
        twin.__dict__[name] = module.__dict__[name].copy()
    twin.__dict__["_modules"] = {
        name: None if child is None else _twin(child, shift, host.get_submodule(name))
        for name, child in module._modules.items()
    }
    if "config" in twin.__dict__:
        twin.__dict__["config"] = host.config
    for name in INDEX_NAMES:
        if isinstance(twin.__dict__.get(name), int):
            twin.__dict__[name] += shift
    _rebind(twin, module)
    return twin


def _rebind(twin: nn.Module, original: nn.Module) -> None:
    """Methods kept as attributes are bound to the original; the twin's must be bound to the twin."""
    for name, value in twin.__dict__.items():
        if isinstance(value, types.MethodType) and value.__self__ is original:
            twin.__dict__[name] = types.MethodType(value.__func__, twin)
