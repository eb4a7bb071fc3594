"""The hops that wait for a node: what has gathered while it was at work is sent together, in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from layerwise.swarm.messages import Gone, Hop, Message, Response
from layerwise.swarm.nodes.batch import is_one_token

MOST_TOGETHER = 64

Call = Callable[[str, Sequence[Message]], Awaitable[Sequence[Response]]]


@dataclass(eq=False, slots=True)
class QueuedHop:
    """A hop, its answer, and its place in the order of sending: -1 while it waits."""

    hop: Hop
    answer: asyncio.Future[Response]
    order: int = -1


class HopQueue:
    """The hops that wait for `node`, which has one call at a time; cancelled hops are not sent."""

    def __init__(self, node: str, call: Call, numbers: Iterator[int]) -> None:
        self._node, self._call, self._numbers = node, call, numbers
        self._waiting: list[QueuedHop] = []
        self._under_way: asyncio.Future[Sequence[Response]] | None = None
        self._is_scheduled = False

    def put(self, hop: Hop, *, at_once: bool = False) -> QueuedHop:
        queued = QueuedHop(hop, asyncio.get_running_loop().create_future())
        if at_once:
            self._send([queued])
        else:
            self._waiting.append(queued)
            self._schedule()
        return queued

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._send_next)

    def _send_next(self) -> None:
        self._is_scheduled = False
        self._waiting = [each for each in self._waiting if not each.answer.done()]
        if self._under_way is not None or not self._waiting:
            return
        first, together = self._waiting[0], self._waiting[:1]
        if is_one_token(first.hop):
            together = [each for each in self._waiting if _alike(first.hop, each.hop)][:MOST_TOGETHER]
        self._waiting = [each for each in self._waiting if each not in together]
        self._under_way = self._send(together)

    def _send(self, together: Sequence[QueuedHop]) -> asyncio.Future[Sequence[Response]]:
        number = next(self._numbers)
        for each in together:
            each.order = number
        call = asyncio.ensure_future(self._call(self._node, [each.hop for each in together]))
        call.add_done_callback(partial(self._answered, together))

        def left(_: asyncio.Future[Response]) -> None:
            if all(each.answer.done() for each in together):
                call.cancel()

        for each in together:
            each.answer.add_done_callback(left)
        return call

    def _answered(self, together: Sequence[QueuedHop], call: asyncio.Future[Sequence[Response]]) -> None:
        if call is self._under_way:
            self._under_way = None
            self._schedule()
        if call.cancelled():
            for each in together:
                each.answer.cancel()
            return
        error = call.exception()
        responses = call.result() if error is None else [Gone(self._node, str(error))] * len(together)
        for each, response in zip(together, responses, strict=True):
            if not each.answer.done():
                each.answer.set_result(response)


def _alike(first: Hop, other: Hop) -> bool:
    return other.visits == first.visits and is_one_token(other)
