"""What runs in a worker: an actor that opens what its pieces are about once, and carries one piece out at a time.

What it sends back are tuples of plain values:

    ("opened",)                     what the pieces are about is open
    ("partial", VALUE)              a partial result of a piece
    ("done", VALUE)                 the result of a piece
    ("refused", CLASS, MESSAGE)     a `LayerwiseError` was raised; no object of ours travels
    ("failed", TRACEBACK)           anything else was

Ray itself pickles them, as it does everything that it carries.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from layerwise.errors import LayerwiseError, SwarmError

OPENED, PARTIAL, DONE, REFUSED, FAILED = "opened", "partial", "done", "refused", "failed"

THREADS = 1
"""Threads of torch in a worker: workers side by side are the threads."""


class Worker:
    """A worker. Ray gives it a process of its own, and calls one method at a time."""

    def __init__(self, folder: str, paths: tuple[str, ...]) -> None:
        """Work in `folder`, where it is there: what was named by a path from it is found; import from `paths` too."""
        if Path(folder).is_dir():
            os.chdir(folder)
        sys.path += [path for path in paths if path not in sys.path]
        self._function: Callable[[Any, Callable[[Any], None]], Any] | None = None

    def open(self, opens: str, shared: Mapping[str, Any]) -> tuple[Any, ...]:
        """Let go what was open, and open what the next pieces are about."""
        self._function = None
        try:
            import torch

            torch.set_num_threads(THREADS)
            self._function = function_named(opens)(shared)
        except Exception as error:
            return ending(error)
        return (OPENED,)

    def carry_out(self, piece: Any) -> Iterator[tuple[Any, ...]]:
        """Carry one piece out, in a thread, so that partial results leave while it is at work."""
        events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        function = self._function

        def work() -> None:
            try:
                assert function is not None, "a worker is opened before it works"
                events.put((DONE, function(piece, lambda value: events.put((PARTIAL, value)))))
            except BaseException as error:
                events.put(ending(error))

        threading.Thread(target=work, name="piece", daemon=True).start()
        while True:
            event = events.get()
            yield event
            if event[0] != PARTIAL:
                return


def function_named(name: str) -> Callable[..., Any]:
    """The function that `layerwise.module:function` names. Raises `SwarmError` for one that is not of layerwise.

    >>> function_named("layerwise.swarm.cluster.worker:function_named") is function_named
    True
    """
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] != "layerwise" or not attribute.isidentifier():
        raise SwarmError(f"a worker runs functions of layerwise, named layerwise.module:function; found {name[:80]!r}")
    function: Callable[..., Any] | None = getattr(import_module(module), attribute, None)
    if not callable(function):
        raise SwarmError(f"{module} has no function {attribute}; the worker may have another version of layerwise")
    return function


def ending(error: BaseException) -> tuple[str, ...]:
    """How a piece ended that raised `error`.

    >>> ending(SwarmError("nobody is there"))
    ('refused', 'SwarmError', 'nobody is there')
    """
    if isinstance(error, LayerwiseError):
        return (REFUSED, type(error).__name__, str(error))
    return (FAILED, "".join(traceback.format_exception(error)))
