"""The forward passes of a model that runs a plan in place, one per thread at a time, and whether each ran all of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.compiler import is_compiling

from layerwise.errors import ModelError
from layerwise.plan import Step
from layerwise.plan.config_order import COUNTS
from layerwise.stack.executors.caches import PlanCaches
from layerwise.stack.executors.state import Merger, follow, read_state, returned_state, with_returned_state


@dataclass(slots=True)
class _Pass:
    executed: int = 0
    following: int = 0
    offered: int = 0  # entries of the list that the model has asked for
    is_in_order: bool = True
    groups: list[Merger] = field(default_factory=list)


class Passes:
    """The passes under a plan with `steps`; at most one a thread is in flight, and those inside it.

    Torch's compiler traces a pass in one thread, without locks; it is not checked.
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
        """Within the context the calling thread is in a pass of `runner`.

        Raises `ModelError` unless it runs the plan, or as much of it as layer drop or an early exit leave.
        """
        outer = self._now()
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
        ran = f"the model ran {mine.executed} visits of a plan of {planned}"
        if not mine.offered or not (mine.is_in_order or mine.executed == planned):
            raise ModelError(f"{ran}: its forward does not walk its list of blocks, so it cannot run plans in place")
        # A forward that stops where the original model ends most likely counts its layers on its own.
        if mine.executed == mine.following == self.depth < planned and not _stops_on_purpose(runner, mine, planned):
            raise ModelError(
                f"{ran}: its forward runs as many blocks as the original model has, however long its list of blocks "
                "is, so it cannot run longer plans in place"
            )

    def trace(self) -> None:
        self._traced = _Pass()

    def offer(self, count: int) -> None:
        now = self._now()
        if now is not None:
            now.offered = max(now.offered, count)

    def visited(self, slot: int) -> None:
        """The visit at `slot` has run; out of its turn, or outside a pass (recomputed, say), it does not count.

        Raises `ModelError` if the model has skipped a part of a parallel group before.
        """
        now = self._now()
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
            f"the model skipped layer {self.steps[slot].name}, a member of a parallel group, whose merge needs every "
            "branch: turn off layer drop (model.eval()), exit after the group, or run a plan without groups"
        )

    def handed_on(self, slot: int, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """What the visit at `slot` hands to the next one, from its call and from what its block returned.

        That is the block's output, except at the ends of the branches of a group: there it is what the next branch
        starts from, or the merge. Raises `ModelError` for a member of a group that is called outside a pass.
        """
        self.visited(slot)
        if not (step.opens or step.closes):
            return output
        now = self._now()
        if now is None:
            raise ModelError(
                f"layer {step.name} is a member of a parallel group and was called outside a forward pass of its "
                "model: call the model, or the layer itself outside `with stack.under(...)`"
            )
        state = follow(step, read_state(args, kwargs), returned_state(output), now.groups)
        return with_returned_state(output, state)

    def wait(self) -> None:
        with self._changed:
            mine = 0 if self._now() is None else 1
            self._changed.wait_for(lambda: self._in_flight <= mine)

    def _now(self) -> _Pass | None:
        return self._traced if is_compiling() else getattr(self._local, "now", None)

    def _count(self, change: int) -> None:
        with self._changed:
            self._in_flight += change
            self._changed.notify_all()


def _stops_on_purpose(runner: nn.Module, mine: _Pass, planned: int) -> bool:
    config = getattr(runner, "config", None)
    drops_layers = runner.training and mine.offered == planned
    return drops_layers or any(getattr(config, name, None) == mine.executed for name in COUNTS)
