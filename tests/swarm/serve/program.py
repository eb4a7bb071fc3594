"""A server as a program: serves a double that stops after one token until a line comes, and ends as `run` does."""

from __future__ import annotations

import logging
import math
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from layerwise.swarm.serve.run import run
from layerwise.swarm.serve.settings import ServeSettings
from swarm.serve.fake import FakeSwarm


class Held(FakeSwarm):
    """A service that goes on when a line is read, and says that it is closed."""

    def listen(self) -> None:
        sys.stdin.readline()
        self.allowed = math.inf

    async def close(self) -> None:
        print("closed", flush=True)


def main() -> int:
    service = Held(allowed=1)
    threading.Thread(target=service.listen, daemon=True).start()

    async def gather() -> FakeSwarm:
        return service

    return run(gather, ServeSettings(port=0, drain_seconds=3600), lambda url: print(url, flush=True))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    sys.exit(main())
