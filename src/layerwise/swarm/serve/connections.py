"""Limits on idle connections: by time, by address, and in total.

Uvicorn waits forever for the first request, and its `limit_concurrency` counts closed connections.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from layerwise.swarm.serve.settings import ServeSettings


def bounded_connections(settings: ServeSettings) -> type[asyncio.Protocol]:
    """Return the protocol class of a server's connections.

    Beyond the limits, the oldest connection without any request so far is closed, then the oldest idle one.
    """
    open_: dict[BoundedConnection, None] = {}

    class BoundedConnection(H11Protocol):
        """A connection that has so many seconds to send the header of a request."""

        _late: asyncio.TimerHandle | None = None

        @property
        def is_waiting(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        @property
        def address(self) -> Any:
            return self.client and self.client[0]

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            open_[self] = None
            self._await_header()
            near = [each for each in open_ if each.address == self.address]
            for known, most in ((near, settings.most_of_address), (list(open_), settings.most_connections)):
                if len(known) > most:
                    waiting = [each for each in known if each.is_waiting]
                    min(waiting, key=lambda each: each.cycle is not None, default=self)._end()

        def data_received(self, data: bytes) -> None:
            before, is_first = self.cycle, self.is_waiting
            super().data_received(data)
            if self.cycle is not before:
                self._has_header()
            elif is_first and self._late is None:
                self._await_header()

        def connection_lost(self, exc: Exception | None) -> None:
            self._has_header()
            open_.pop(self, None)
            super().connection_lost(exc)

        def _await_header(self) -> None:
            self._late = self.loop.call_later(settings.header_seconds, self._end)

        def _has_header(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _end(self) -> None:
            open_.pop(self, None)
            self.transport.abort()

    return BoundedConnection
