"""The processes that torchrun started, as workers of a measurement: after a training they would wait for the first one.

Every process has opened the same experiment from the same command. The first one measures, and hands pieces out
through a store of torch's, which it serves: a list of pieces, a counter from which each process takes the number of its
next one, and what each process sends back, in its order. The first process takes pieces as the others do, and looks for
what they sent whenever a piece of its own emits. Nothing but plain values travels, as text.

Where a process ends, torchrun ends all of them, and the run is gone on with by the same command.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from layerwise.experiments.cluster.workers import check_same_here
from layerwise.experiments.engines.steps import Outline
from layerwise.measure.workers import Emit, OnPartial, PieceFunction, Plain, Spread
from layerwise.results import Manifest
from layerwise.swarm.cluster.workers import DONE, PARTIAL, ending, raised
from layerwise.train.processes import is_first_process

_WAIT = 0.02
"""Seconds between two looks for what another process sent."""

_FAREWELL = 20.0
"""Seconds that the first process waits for the others to see that nothing is left to do."""

_LEFT = "left"
"""The counter of the processes that have."""

_TAKEN = "taken"
"""The counter of the pieces that were taken."""

_LONG = timedelta(days=365)
"""A process may wait for the first one as long as that measures."""


class Ranks:
    """The workers: this process, the first, and all others. `function` carries pieces out, in this one as in those."""

    def __init__(self, store: Any, count: int, function: PieceFunction) -> None:
        self.store = store
        self.count = count
        self.function = function
        self._work = 0

    def map(
        self,
        opens: str,
        shared: Mapping[str, Plain],
        pieces: Sequence[Plain],
        *,
        here: PieceFunction,
        on_partial: OnPartial | None = None,
        rest: Callable[[Plain], Plain] | None = None,
    ) -> Iterator[tuple[int, Plain]]:
        """The number and the result of every piece, as they are done; see `Workers.map`.

        `here` is not called. What is left of a piece is asked before the first one is begun: no process ends alone, so
        none is begun twice.
        """
        left = [piece if rest is None else rest(piece) for piece in pieces]
        work, self._work = self._work, self._work + 1
        heard = [0] * self.count
        done: list[tuple[int, Plain]] = []

        def take(number: int, event: tuple[Any, ...]) -> None:
            if event[0] == PARTIAL:
                if on_partial is not None:
                    on_partial(number, event[1])
            elif event[0] == DONE:
                done.append((number, event[1]))
            else:
                raise raised(event)

        def look() -> None:
            for process in range(1, self.count):
                while self.store.check([_sent(work, process, heard[process])]):
                    name = _sent(work, process, heard[process])
                    number, event = read(self.store.get(name))
                    self.store.delete_key(name)
                    heard[process] += 1
                    take(number, event)

        self.store.set(_pieces(work), written(left))
        finished = 0
        try:
            while finished < len(left):
                number = _next(self.store, work)
                if number < len(left):

                    def emit(news: Plain, number: int = number) -> None:
                        take(number, (PARTIAL, news))
                        look()

                    take(number, (DONE, self.function(left[number], emit)))
                else:
                    time.sleep(_WAIT)
                look()
                finished += len(done)
                yield from done
                done.clear()
        finally:
            self.store.add(f"{work}/{_TAKEN}", len(left))  # whoever looks for another piece finds none

    def close(self) -> None:
        """Let every other process end, and wait a little until it knows: the store ends with this process."""
        self.store.set(_pieces(self._work), written(None))
        until = time.monotonic() + _FAREWELL
        while int(self.store.add(_LEFT, 0)) < self.count - 1 and time.monotonic() < until:
            time.sleep(_WAIT)


def serve(store: Any, process: int, function: PieceFunction) -> None:
    """Carry pieces out until the first process closes its `Ranks`."""
    work = 0
    while True:
        while not store.check([_pieces(work)]):
            time.sleep(_WAIT)
        pieces = read(store.get(_pieces(work)))
        if pieces is None:
            store.add(_LEFT, 1)
            return
        sent = 0

        def send(number: int, event: tuple[Any, ...], work: int = work) -> None:
            nonlocal sent
            store.set(_sent(work, process, sent), written((number, event)))
            sent += 1

        def hand_on(number: int, news: Plain, send: Callable[..., None] = send) -> None:
            send(number, (PARTIAL, news))

        while (number := _next(store, work)) < len(pieces):
            try:
                result = function(pieces[number], partial(hand_on, number))
            except Exception as error:
                send(number, ending(error))
            else:
                send(number, (DONE, result))
        work += 1


@contextmanager
def measuring(outline: Outline) -> Iterator[Spread]:
    """In the first process of several: within the context the others are the workers of what is measured."""
    store, count = _met(outline)
    ranks = Ranks(store, count, outline.pieces or _no_piece)
    try:
        yield Spread(ranks)
    finally:
        ranks.close()


def assist(outline: Outline) -> None:
    """In another process: carry out pieces of what the first one measures, until it is through."""
    store, _ = _met(outline)
    serve(store, int(os.environ["RANK"]), outline.pieces or _no_piece)


def _no_piece(piece: Plain, emit: Emit) -> Plain:
    raise AssertionError("this experiment hands out no pieces")


def _met(outline: Outline) -> tuple[Any, int]:
    """The store that all processes share, and how many they are.

    Raises `RunError` where a process has opened another thing, or computes on another kind of machine.
    """
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    state = PartialState(cpu=outline.manifest.device == "cpu")
    host = os.environ["MASTER_ADDR"]
    store: Any = None
    if is_first_process():
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=_LONG)
    first = {"port": None if store is None else store.port, "manifest": outline.manifest.to_json()}
    first = broadcast_object_list([first])[0]
    check_same_here(Manifest.from_json(first["manifest"]), outline.manifest)
    if store is None:
        store = TCPStore(host, first["port"], is_master=False, wait_for_workers=False, timeout=_LONG)
    return store, state.num_processes


def _next(store: Any, work: int) -> int:
    return int(store.add(f"{work}/{_TAKEN}", 1)) - 1


def _pieces(work: int) -> str:
    return f"{work}/pieces"


def _sent(work: int, process: int, number: int) -> str:
    return f"{work}/{process}/{number}"


_KIND = "kind"


def written(value: Plain) -> bytes:
    """A plain value as text that travels between processes, to the bit.

    It is JSON, with tuples, dicts and bytes named as such.

    >>> read(written({"loss": [0.1, (2, None)], "row": b"ab"}))
    {'loss': [0.1, (2, None)], 'row': b'ab'}
    """
    return json.dumps(_named(value)).encode()


def read(text: bytes) -> Plain:
    """The value that `written` made this text of."""
    return _value(json.loads(text))


def _named(value: Plain) -> Any:
    if isinstance(value, dict):
        return {_KIND: "dict", "of": {name: _named(each) for name, each in value.items()}}
    if isinstance(value, tuple):
        return {_KIND: "tuple", "of": [_named(each) for each in value]}
    if isinstance(value, bytes):
        return {_KIND: "bytes", "of": base64.b64encode(value).decode()}
    return [_named(each) for each in value] if isinstance(value, list) else value


def _value(named: Any) -> Plain:
    if isinstance(named, list):
        return [_value(each) for each in named]
    if not isinstance(named, dict):
        return named
    content = named["of"]
    if named[_KIND] == "dict":
        return {name: _value(each) for name, each in content.items()}
    return base64.b64decode(content) if named[_KIND] == "bytes" else tuple(_value(each) for each in content)
