"""Who may run a model's layers at this moment: one plan in place, or any number of captures, and nobody else.

A plan in place changes what everybody who calls the model computes, so two Stacks over one model, or one Stack in two
threads, must know of each other. They do by the objects that are changed: the list of blocks, and the configurations
that its model reads.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident

from torch import nn

from layerwise.errors import ModelError
from layerwise.plan import Plan
from layerwise.stack.blocks import block_list


@dataclass(slots=True)
class _Use:
    """How one object is used: the plans in place over it, innermost last, and the captures of each thread."""

    plans: list[tuple[int, Plan]] = field(default_factory=list)
    captures: Counter[int] = field(default_factory=Counter)

    def elsewhere(self) -> bool:
        """Whether other threads capture."""
        return any(count and thread != get_ident() for thread, count in self.captures.items())


# By the identity of the object, which is alive as long as it is used.
_USES: dict[int, _Use] = {}
_CHANGED = threading.Condition()


def running(blocks: nn.ModuleList) -> Plan | None:
    """The plan that the list of blocks runs in place at this moment, in whatever thread it was entered."""
    with _CHANGED:
        use = _USES.get(id(blocks))
        return use.plans[-1][1] if use is not None and use.plans else None


def refuse_while_running(blocks: nn.ModuleList, name: str, wish: str) -> None:
    """Raise `ModelError` if the model called `name` runs a plan over `blocks` in place."""
    plan = running(blocks)
    if plan is not None:
        raise ModelError(
            f"cannot {wish}: {name} is running {plan} in place; leave that `with stack.under(...)` first, or use "
            "another copy of the model"
        )


@contextmanager
def in_place(model: nn.Module, path: str, name: str, plan: Plan) -> Iterator[None]:
    """Within the context the blocks of `model` at `path` are taken by `plan`; captures of other threads are waited for.

    Raises `ModelError` when they run a plan already, when a part of the model that `plan` changes is taken by another
    thread, and when the calling thread is in the middle of a capture.
    """
    blocks, used = block_list(model, path), _changed(model, path)
    with _CHANGED:
        refuse_while_running(blocks, name, f"run {plan}")
        if any(_use(key).captures[get_ident()] for key in used):
            raise ModelError(f"cannot run {plan}: {name} is being captured; enter the plan after the capture")
        _CHANGED.wait_for(lambda: not any(_use(key).elsewhere() for key in used))
        refuse_while_running(blocks, name, f"run {plan}")
        for key in used[1:]:
            others = [entered for thread, entered in _use(key).plans if thread != get_ident()]
            if others:
                raise ModelError(
                    f"cannot run {plan}: another part of {name} is running {others[-1]} in place in another thread; "
                    "wait until it has left that `with stack.under(...)`, or use another copy of the model"
                )
        mine = (get_ident(), plan)
        for key in used:
            _use(key).plans.append(mine)
    try:
        yield
    finally:
        _release(used, lambda use: use.plans.remove(mine))


@contextmanager
def capturing(model: nn.Module, path: str, name: str, wish: str) -> Iterator[None]:
    """Within the context the calling thread runs the model step by step; raises `ModelError` while it runs a plan."""
    blocks, used = block_list(model, path), _changed(model, path)
    with _CHANGED:
        refuse_while_running(blocks, name, wish)
        for key in used:
            _use(key).captures[get_ident()] += 1
    try:
        yield
    finally:
        _release(used, lambda use: use.captures.subtract([get_ident()]))


def _changed(model: nn.Module, path: str) -> list[int]:
    """The identities of what a plan in place changes: the list of blocks first, then the configurations above it."""
    parts = path.split(".")
    owners = [model, *(model.get_submodule(".".join(parts[:length])) for length in range(1, len(parts)))]
    configs = [config for owner in owners if (config := getattr(owner, "config", None)) is not None]
    return [id(block_list(model, path)), *dict.fromkeys(map(id, configs))]


def _use(key: int) -> _Use:
    return _USES.setdefault(key, _Use())


def _release(used: list[int], give_back: Callable[[_Use], None]) -> None:
    with _CHANGED:
        for key in used:
            use = _USES[key]
            give_back(use)
            if not use.plans and not any(use.captures.values()):
                del _USES[key]
        _CHANGED.notify_all()
