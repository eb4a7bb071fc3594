"""A server as a program: serves a double until a signal comes, and ends with the status that `run` returns.

Its arguments are the seconds that a token takes, those that requests under way have left, and those until it is ready.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from layerwise.swarm.serve.run import run
from layerwise.swarm.serve.settings import ServeSettings
from swarm.serve.fake import FakeSwarm


class Shown(FakeSwarm):
    async def close(self) -> None:
        print("closed", flush=True)


def main() -> int:
    delay, drain, start = map(float, sys.argv[1:])

    async def gather() -> FakeSwarm:
        print("gathering", flush=True)
        await asyncio.sleep(start)
        return Shown(delay=delay)

    settings = ServeSettings(port=0, drain_seconds=drain)
    return run(gather, settings, lambda url: print(url, flush=True))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    sys.exit(main())
