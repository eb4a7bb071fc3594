"""Whether the swarm makes tokens: checked by making one, and not more often than once a second."""

from __future__ import annotations

import asyncio

from layerwise.swarm.serve.service import Service

_KEPT_SECONDS = 1.0


class Readiness:
    """Answers any number of probes with one check at a time, so that nobody makes the swarm work by asking."""

    def __init__(self, service: Service, seconds: float) -> None:
        self._service, self._seconds = service, seconds
        self._checking = asyncio.Lock()
        self._last: tuple[float, tuple[bool, str]] | None = None

    async def check(self) -> tuple[bool, str]:
        """Whether a token was made within the last second or is made now, and the reason if not."""
        async with self._checking:
            clock = asyncio.get_running_loop().time
            if self._last is not None and clock() - self._last[0] < _KEPT_SECONDS:
                return self._last[1]
            try:
                async with asyncio.timeout(self._seconds):
                    ready = await self._service.ready()
            except TimeoutError:
                ready = False, f"no token was made within {self._seconds:g} s"
            except Exception as error:  # whatever is wrong with the swarm, it makes no token
                ready = False, f"no token could be made: {error}"
            self._last = clock(), ready
            return ready
