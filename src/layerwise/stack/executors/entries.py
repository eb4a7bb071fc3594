"""Replace the blocks that a model iterates over while a plan or capture runs, without changing the module tree."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from threading import get_ident
from typing import Any, cast

from torch import nn
from torch.compiler import is_compiling

from layerwise.errors import ModelError
from layerwise.stack.blocks import BlockList
from layerwise.stack.executors.clone import subclass

Entries = tuple[nn.Module, ...]

_KEY = "_layerwise_entries"
_CHANGING = threading.RLock()


@dataclass(slots=True)
class _Answers:
    kind: type[BlockList]
    on_walk: Callable[[int], None] | None = None
    everyone: list[Entries] = field(default_factory=list)
    threads: dict[int, list[Entries]] = field(default_factory=dict)


@contextmanager
def entries(
    blocks: BlockList,
    listed: Sequence[nn.Module],
    *,
    everyone: bool = False,
    on_walk: Callable[[int], None] | None = None,
) -> Iterator[None]:
    """Make iteration over `blocks` yield the modules `listed`, in this thread or, if `everyone`, in all threads.

    `on_walk` is called with the number of modules requested. Changing or copying the list raises `ModelError`.
    """
    chosen = tuple(listed)
    with _CHANGING:
        answers: _Answers = vars(blocks).setdefault(_KEY, _Answers(type(blocks)))
        mine = answers.everyone if everyone else answers.threads.setdefault(get_ident(), [])
        mine.append(chosen)
        answers.on_walk = on_walk or answers.on_walk
        blocks.__class__ = _listing(cast(Hashable, answers.kind))
    try:
        yield
    finally:
        with _CHANGING:
            mine.remove(chosen)
            if not everyone and not mine:
                answers.threads.pop(get_ident(), None)
            if not answers.everyone and not answers.threads:
                blocks.__class__ = answers.kind
                vars(blocks).pop(_KEY, None)


def own_blocks(blocks: BlockList) -> Entries:
    return tuple(blocks._modules.values())


def _listed(blocks: BlockList) -> Entries:
    answers: _Answers | None = vars(blocks).get(_KEY)
    if answers is None:
        return own_blocks(blocks)
    mine = None if is_compiling() else answers.threads.get(get_ident())
    listed = mine or answers.everyone
    return listed[-1] if listed else own_blocks(blocks)


def _walked(blocks: BlockList, count: int | None = None) -> Entries:
    listed, answers = _listed(blocks), vars(blocks).get(_KEY)
    if answers is not None and answers.on_walk is not None:
        answers.on_walk(len(listed) if count is None else count)
    return listed


def _as_list(kind: type[BlockList], modules: Entries) -> BlockList:
    made = nn.Sequential() if issubclass(kind, nn.Sequential) else nn.ModuleList()
    made._modules = {str(number): module for number, module in enumerate(modules)}
    return made


@cache
def _listing(kind: Any) -> Any:
    def iterate(self: BlockList) -> Iterator[nn.Module]:
        return iter(_walked(self))

    def count(self: BlockList) -> int:
        return len(_listed(self))

    def get_item(self: BlockList, index: Any) -> Any:
        positions = range(len(_listed(self)))[index]
        last = max(positions, default=-1) if isinstance(index, slice) else positions
        entry = _walked(self, last + 1)[index]
        return _as_list(kind, entry) if isinstance(index, slice) else entry

    def children(self: BlockList) -> Iterator[nn.Module]:
        # checkpoint_sequential (torch) and checkpoint_seq (timm) use the children.
        return iter(_walked(self))

    walks: dict[str, Any] = {"__iter__": iterate, "__len__": count, "__getitem__": get_item, "children": children}
    walks |= {name: _on_own_blocks(kind, name) for name in ("train", "apply", "_apply")}
    changes = ("__setitem__", "__delitem__", "__iadd__", "append", "extend", "insert", "pop")
    refusals = {name: _refusing("change the list of blocks") for name in changes}
    return subclass(kind, {**walks, **refusals, **REFUSED_COPIES})


def _on_own_blocks(kind: Any, name: str) -> Callable[..., Any]:
    def change(self: BlockList, *args: Any, **kwargs: Any) -> Any:
        with entries(self, own_blocks(self)):
            return getattr(kind, name)(self, *args, **kwargs)

    return change


def _refusing(action: str) -> Callable[..., Any]:
    def refuse(self: nn.Module, *_: Any, **__: Any) -> Any:
        raise ModelError(
            f"cannot {action} while it runs a plan; leave `with stack.under(...)` first, or save the model of the plan "
            "with layerwise.checkpoint.save"
        )

    return refuse


REFUSED_COPIES = {name: _refusing("copy or pickle the model") for name in ("__reduce_ex__", "__deepcopy__", "__copy__")}
