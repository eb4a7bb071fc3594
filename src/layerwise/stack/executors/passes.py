"""The forward passes of a model that runs a plan in place, one per thread at a time, and whether each ran all of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch.compiler import is_compiling

from layerwise.errors import ModelError
from layerwise.plan import Step
from layerwise.stack.executors.state import Merger, follow, read_state, returned_state, with_returned_state


@dataclass(slots=True)
class _Pass:
    executed: int = 0
    following: int = 0
    merges: bool = False
    groups: list[Merger] = field(default_factory=list)


class Passes:
    """The passes under one plan of `planned` visits; at most one a thread is in flight, and those inside it.

    Torch's compiler traces a pass in one thread, without locks.
    """

    def __init__(self, planned: int) -> None:
        self.planned = planned
        self._local = threading.local()
        self._changed = threading.Condition()
        self._in_flight = 0
        self._traced: _Pass | None = None

    @contextmanager
    def one(self, may_be_short: Callable[[int], bool] = lambda executed: False) -> Iterator[None]:
        """Within the context the calling thread is in a pass; raises `ModelError` unless it ran the plan, whole.

        `may_be_short` is asked about a pass of fewer visits: a model may drop layers in training, or exit early.
        """
        outer = self._now()
        self._local.now = mine = _Pass()
        self._count(+1)
        try:
            yield
        finally:
            self._local.now = outer
            self._count(-1)
        if mine.executed == self.planned:
            return
        ran = f"the model ran {mine.executed} visits of a plan of {self.planned}"
        if not may_be_short(mine.executed):
            raise ModelError(f"{ran}: its forward does not walk its list of blocks, so it cannot run plans in place")
        if mine.groups or (mine.merges and mine.executed != mine.following):
            raise ModelError(
                f"{ran}, since it drops layers or exits early, inside a parallel group, whose merge needs every "
                "branch: set its layer drop to 0, exit after the group, or run a plan without groups"
            )

    def trace(self) -> None:
        """Begin a pass that torch's compiler traces; what it runs is checked by the passes that are not compiled."""
        self._traced = _Pass()

    def visited(self, slot: int) -> None:
        """The visit at `slot` has run; out of its turn, or outside a pass (recomputed, say), it does not count."""
        now = self._now()
        if now is not None and slot >= now.following:
            now.executed, now.following = now.executed + 1, slot + 1

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
        now.merges = True
        state = follow(step, read_state(args, kwargs), returned_state(output), now.groups)
        return with_returned_state(output, state)

    def wait(self) -> None:
        """Return when no other thread is in a pass: what it runs may be taken away only then."""
        with self._changed:
            mine = 0 if self._now() is None else 1
            self._changed.wait_for(lambda: self._in_flight <= mine)

    def _now(self) -> _Pass | None:
        return self._traced if is_compiling() else getattr(self._local, "now", None)

    def _count(self, change: int) -> None:
        with self._changed:
            self._in_flight += change
            self._changed.notify_all()
