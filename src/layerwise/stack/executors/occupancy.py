"""Prevent conflicting uses of a model's layers by several Stacks or threads.

While a plan runs in place, all other uses raise an error. While batches are captured or layers inspected, other threads
wait. The locks belong to what is changed: the list of blocks, and the modules around it.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import Literal

from torch import nn

from layerwise.errors import ModelError
from layerwise.plan import Plan
from layerwise.stack.blocks import BlockList, block_list


@dataclass(slots=True)
class _Use:
    plans: list[tuple[int, Plan]] = field(default_factory=list)
    captures: Counter[int] = field(default_factory=Counter)
    examinations: Counter[int] = field(default_factory=Counter)


# By the identity of the object, which lives while it is used.
_USES: defaultdict[int, _Use] = defaultdict(_Use)
_CHANGED = threading.Condition()


def running(blocks: BlockList) -> Plan | None:
    with _CHANGED:
        plans = _USES[id(blocks)].plans if id(blocks) in _USES else []
        return plans[-1][1] if plans else None


def refuse_while_running(blocks: BlockList, name: str, action: str) -> None:
    plan = running(blocks)
    if plan is not None:
        raise ModelError(
            f"cannot {action}: {name} is running {plan} in place; leave `with stack.under(...)` first (stack.leave() "
            "for a compact checkpoint), or use another copy of the model"
        )


@contextmanager
def in_place(model: nn.Module, path: str, name: str, plan: Plan) -> Iterator[None]:
    """Lock the blocks at `path` for running `plan` in place. Raise `ModelError` if they are in use."""
    action, mine = f"run {plan}", (get_ident(), plan)
    with _CHANGED:
        used = _wait_until_free(model, path, name, action, captures=True)
        _refuse_other_parts(used[1:], name, action)
        for key in used:
            _USES[key].plans.append(mine)
    try:
        yield
    finally:
        _release(used, lambda use: use.plans.remove(mine))


def inspecting(model: nn.Module, path: str, name: str) -> AbstractContextManager[None]:
    """Lock the blocks for this thread only. Raise `ModelError` during a plan or a capture."""
    return capturing(model, path, name, "examine its layers", "examinations")


@contextmanager
def capturing(
    model: nn.Module, path: str, name: str, action: str, kind: Literal["captures", "examinations"] = "captures"
) -> Iterator[None]:
    """Lock the blocks for capturing a batch. Raise `ModelError` while a plan runs in place."""
    with _CHANGED:
        used = _wait_until_free(model, path, name, action, captures=kind == "examinations")
        for key in used:
            getattr(_USES[key], kind)[get_ident()] += 1
    try:
        yield
    finally:
        _release(used, lambda use: getattr(use, kind).subtract([get_ident()]))


def _wait_until_free(model: nn.Module, path: str, name: str, action: str, *, captures: bool) -> list[int]:
    blocks, used = block_list(model, path), _changed_parts(model, path)
    refuse_while_running(blocks, name, action)
    kept = [_USES[key] for key in used if key in _USES]
    if captures and any(use.captures[get_ident()] for use in kept):
        raise ModelError(f"cannot {action} while a batch of {name} is being captured; wait until the capture has ended")

    def alone() -> bool:
        now = [_USES[key] for key in used if key in _USES]
        return not any(
            _is_used_elsewhere(use.examinations) or (captures and _is_used_elsewhere(use.captures)) for use in now
        )

    _CHANGED.wait_for(alone)
    refuse_while_running(blocks, name, action)
    return used


def _refuse_other_parts(used: list[int], name: str, action: str) -> None:
    entered = [each for key in used if key in _USES for each in _USES[key].plans]
    others = [plan for thread, plan in entered if thread != get_ident()]
    if others:
        raise ModelError(
            f"cannot {action}: another thread is running {others[-1]} in another part of {name}; wait until it leaves "
            "`with stack.under(...)`, or use another copy of the model"
        )


def _changed_parts(model: nn.Module, path: str) -> list[int]:
    parts = path.split(".")
    owners = [model, *(model.get_submodule(".".join(parts[:length])) for length in range(1, len(parts)))]
    return [id(block_list(model, path)), *dict.fromkeys(map(id, owners))]


def _is_used_elsewhere(threads: Counter[int]) -> bool:
    return any(count and thread != get_ident() for thread, count in threads.items())


def _release(used: list[int], give_back: Callable[[_Use], None]) -> None:
    with _CHANGED:
        for key in used:
            use = _USES[key]
            give_back(use)
            if not use.plans and not any(use.captures.values()) and not any(use.examinations.values()):
                del _USES[key]
        _CHANGED.notify_all()
