"""Kill parts of a server under streams: do clients get the same tokens, and is everything cleaned up?

    python benchmarks/serve_faults.py --rounds 5      # of each part: GCS, raylet, a node, the router python
    benchmarks/serve_faults.py --half 20       # one of two nodes that hold all layers each python
    benchmarks/serve_faults.py --ends 5        # of each signal: SIGTERM, SIGINT, SIGKILL, under streams python
    benchmarks/serve_faults.py --rounds 5 --parts GCS --tokens 450  # streams longer than a cluster survives without GCS

Eight clients read streams of 100 tokens (or `--tokens`), every second one greedy, the others
sampled with a seed. A part is killed
(SIGKILL) once all have ten tokens. A stream must equal the text from before any fault, or end with an error event;
otherwise it is lost. The signals are sent only to the server; 20 seconds later no process or directory of
it may exist.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil

STREAMS, BEFORE = 8, 10
PROMPTS = [f"reverse k d a z {chr(97 + number)} =" for number in range(STREAMS)]
PARTS = {"GCS": "gcs_server", "raylet": "raylet/raylet", "node": "ray::NodeActor", "router": "-m layerwise serve"}
PATIENCE = 300.0
CHECKED = 4.0
"""Seconds in which a server has looked at each idle node."""


def body(number: int, tokens: int) -> dict[str, Any]:
    more = {"temperature": 1.0, "seed": number} if number % 2 else {"temperature": 0.0}
    return {"prompt": PROMPTS[number], "max_tokens": tokens, "min_tokens": tokens, "stream": True, **more}


class Server:
    """A fresh server of the demo model, and its processes and directories."""

    def __init__(self, *options: str, tokens: int) -> None:
        self.tokens = tokens
        self.temporary = tempfile.mkdtemp(prefix="t")
        command = [sys.executable, "-m", "layerwise", "serve", "demo", "--port", "0", *options]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": self.temporary},
        )
        assert self.process.stdout is not None
        self.address = next(match[1] for line in self.process.stdout if (match := re.search(r"(http://\S+)/v1", line)))

    def parts(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def is_whole(self) -> bool:
        """Return whether all parts run; a cluster without GCS runs for a while."""
        lines = []
        for each in self.parts():
            with suppress(psutil.Error):
                lines.append(" ".join(each.cmdline()))
        return all(any(name in line for line in lines) for name in PARTS.values())

    def kill(self, part: str) -> None:
        """Kill one process of this part, or the first node."""
        for each in self.parts():
            with suppress(psutil.Error):
                if PARTS[part] in " ".join(each.cmdline()):
                    each.kill()
                    return
        raise RuntimeError(f"The server has no process of the {part}.")

    def left(self) -> tuple[int, int]:
        """Return the remaining processes and directories of an ended server."""
        mine = 0
        for each in psutil.process_iter():
            try:
                mine += each.environ().get("TMPDIR") == self.temporary
            except psutil.Error:
                continue
        return mine, len(list(Path(self.temporary).glob("layerwise-*")))


async def read(client: httpx.AsyncClient, number: int, tokens: int, begun: list[int]) -> tuple[str, str, float]:
    """Read a stream: its end (`whole`, `error` or `lost`), its text, and the longest time between two events."""
    text, ended, longest, last = "", "lost", 0.0, time.monotonic()
    try:
        async with client.stream("POST", "/v1/completions", json=body(number, tokens)) as answer:
            async for line in answer.aiter_lines():
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
                if line == "data: [DONE]":
                    ended = "whole"
                elif line.startswith("data: "):
                    event = json.loads(line[6:])
                    if "error" in event:
                        ended = "error"
                        print(event["error"]["message"])
                        continue
                    text += event["choices"][0]["text"]
                    begun[number] += 1
    except httpx.HTTPError:
        pass
    return ended, text, longest


async def streams(server: Server, happens: Callable[[], None] | None = None) -> list[tuple[str, str, float]]:
    begun = [0] * STREAMS

    async def strike(happens: Callable[[], None]) -> None:
        while min(begun) < BEFORE:
            await asyncio.sleep(0.01)
        happens()

    async with httpx.AsyncClient(base_url=server.address, timeout=PATIENCE) as client:
        striking = asyncio.ensure_future(strike(happens)) if happens else None
        results = await asyncio.gather(*(read(client, number, server.tokens, begun) for number in range(STREAMS)))
        if striking is not None and not striking.done():
            striking.cancel()
    return results


async def ready(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.address, timeout=PATIENCE) as client:
        while not (server.is_whole() and (await client.get("/health")).status_code == 200 and await all_live(client)):
            await asyncio.sleep(0.5)


async def all_live(client: httpx.AsyncClient) -> bool:
    """Return whether each node is live, after the next check of idle nodes."""
    await asyncio.sleep(CHECKED)
    overview = (await client.get("/swarm/overview")).json()
    return all(node["state"] == "live" for node in overview["nodes"])


def faults(rounds: int, parts: Collection[str], tokens: int, *options: str) -> None:
    server = Server(*options, tokens=tokens)
    asyncio.run(ready(server))
    texts = [text for _, text, _ in asyncio.run(streams(server))]
    for part in parts:
        counts: Counter[str] = Counter()
        longest = 0.0
        for _ in range(rounds):
            results = asyncio.run(streams(server, partial(server.kill, part)))
            for (ended, text, gap), own in zip(results, texts, strict=True):
                counts["different" if ended == "whole" and text != own else ended] += 1
                longest = max(longest, gap)
            asyncio.run(ready(server))
        print(
            f"{part} killed {rounds} times under {STREAMS} streams: {dict(counts)}, longest wait {longest:.1f} s, load "
            f"{os.getloadavg()[0]:.1f}",
            flush=True,
        )
    server.process.send_signal(signal.SIGTERM)
    status = server.process.wait(PATIENCE)
    print(f"SIGTERM after {rounds * len(parts)} faults: exit status {status}, left {server.left()}")


def ends(rounds: int, tokens: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        for _ in range(rounds):
            server = Server("--set", "drain_seconds=60", tokens=tokens)
            asyncio.run(ready(server))
            results = asyncio.run(streams(server, partial(server.process.send_signal, number)))
            status = server.process.wait(PATIENCE)
            until = time.monotonic() + 20
            while server.left() != (0, 0) and time.monotonic() < until:
                time.sleep(0.2)
            ended = dict(Counter(ended for ended, _, _ in results))
            print(
                f"{number.name}: exit status {status}, streams {ended}, processes and folders left {server.left()}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--half", type=int, default=0)
    parser.add_argument("--ends", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=tuple(PARTS))
    parser.add_argument("--tokens", type=int, default=100)
    options = parser.parse_args()
    if options.rounds:
        faults(options.rounds, options.parts, options.tokens)
    if options.half:
        faults(options.half, ("node",), options.tokens, "--nodes", "2")
    if options.ends:
        ends(options.ends, options.tokens)


if __name__ == "__main__":
    main()
