"""A model that now and then runs a draft of its layers, and else itself: entering and leaving costs microseconds.

It is `Stack.under` for passes of a few milliseconds. What a plan in place needs (entries of the list of blocks, the
configuration in visit order) is made once a generation, and answered with during the drafts alone. A draft that visits
each of its layers once enters the blocks themselves, under their own numbers; another enters clones, which have the
numbers of the visits, as in `layerwise.stack.executors.in_place`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn
from transformers import Cache

from layerwise.plan import Plan, Step
from layerwise.stack.blocks import block_list
from layerwise.stack.executors import occupancy
from layerwise.stack.executors.config_view import Values, reading, visit_order_values
from layerwise.stack.executors.entries import entries, own_blocks
from layerwise.stack.executors.in_place import in_passes, runner_of, visit_entry
from layerwise.stack.executors.passes import Passes
from layerwise.stack.speculation.shared_cache import DraftCache, by_layer, by_visit
from layerwise.stack.stack import Stack


@dataclass(frozen=True, eq=False)
class Drafting:
    """What a model is answered with while it drafts."""

    blocks: nn.ModuleList
    runner: nn.Module
    steps: tuple[Step, ...]
    listed: tuple[nn.Module, ...]
    values: Values
    passes: Passes | None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within the context passes of the calling thread run the draft."""
        with reading(self.values), entries(self.blocks, self.listed):
            if self.passes is None:
                yield
                return
            with in_passes(self.runner, self.passes, single_pass=False):
                yield

    def view(self, cache: Cache) -> DraftCache:
        """The slots of `cache` that the draft reads and writes; a fresh view for every round."""
        return by_layer(cache, self.steps) if self.passes is None else by_visit(cache, self.steps)


@contextmanager
def drafting(stack: Stack, draft: Plan) -> Iterator[Drafting]:
    """Within the context the layers of `stack` are taken, and `running` may be entered again and again.

    Raises `ModelError` while the model runs a plan in place.
    """
    model, path = stack.model, stack.path
    branches = stack.branches() if draft.has_sublayers() else None
    steps = tuple(draft.steps())
    blocks = block_list(model, path)
    own = own_blocks(blocks)
    passes = None if enters_blocks(steps) else Passes(len(steps))
    with occupancy.in_place(model, path, stack.source.name, draft):
        listed = tuple(
            own[step.layer] if passes is None else visit_entry(stack, step, slot, slot - step.layer, passes, branches)
            for slot, step in enumerate(steps)
        )
        values = visit_order_values(model, path, draft.order(), len(own))
        yield Drafting(blocks, runner_of(model, path), steps, listed, values, passes)


def enters_blocks(steps: tuple[Step, ...]) -> bool:
    """Whether each step is a whole layer, outside every group, that no other step visits."""
    plain = all(step.sublayer is None and not step.opens and not step.closes for step in steps)
    return plain and len({step.layer for step in steps}) == len(steps)
