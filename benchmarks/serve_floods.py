"""How long others wait while a server is flooded with connections that say nothing, headers without end, long prompts.

    python benchmarks/serve_floods.py                  # 2,000 idle connections, 200 slow headers, 100 prompts of 3.9 MB
    python benchmarks/serve_floods.py --from 127.0.0.1     # from the address of the others

A client asks for 40 tokens again and again: at first alone, then while another process floods the server, each kind
for some seconds. Printed are the medians, and the longest wait. The bar is twice the usual time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
from serve_waves import PROMPTS, ask, served

COUNTS = {"idle": 2000, "headers": 200, "prompts": 100}
TOKENS, ASKED = 40, 30
LONG = json.dumps({"prompt": "a b " * 975_000, "max_tokens": 8}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"


async def flood(kind: str, address: str, source: str) -> None:
    """Keep as many connections of a kind open as there are to be, without end: one that is closed is opened again."""
    url = urlsplit(address)
    assert url.hostname is not None

    async def one(number: int) -> None:
        await asyncio.sleep(number * 0.001)
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(url.hostname, url.port, local_addr=(source, 0))
                try:
                    await speak(reader, writer)
                finally:
                    writer.close()
            await asyncio.sleep(0.5)

    async def idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD % url.netloc.encode())
        while not reader.at_eof():
            writer.write(b"X-More: a\r\n")
            await writer.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(100), 1.0)

    async def prompts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD % url.netloc.encode() + b"Content-Length: %d\r\n\r\n" % len(LONG) + LONG)
        await reader.read(100)

    speak: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = {
        "idle": idle,
        "headers": headers,
        "prompts": prompts,
    }[kind]
    print("flooding", flush=True)
    flooding = asyncio.gather(*(one(number) for number in range(COUNTS[kind])))
    await asyncio.to_thread(sys.stdin.read)  # ends with whoever has started this process
    flooding.cancel()


async def waits(address: str) -> list[float]:
    seconds = []
    async with httpx.AsyncClient(base_url=address, timeout=600) as client:
        for number in range(ASKED):
            began = time.perf_counter()
            answer = await ask(client, PROMPTS[number % len(PROMPTS)], TOKENS)
            assert answer["status"] == 200, answer
            seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", default="127.0.0.2", metavar="ADDRESS", help="where floods come from")
    parser.add_argument("--flood", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        kind, address = options.flood
        asyncio.run(flood(kind, address, options.source))
        return
    with served("demo") as (address, _):
        asyncio.run(waits(address))
        for kind, count in COUNTS.items():
            usual = asyncio.run(waits(address))
            command = [sys.executable, __file__, "--from", options.source, "--flood", kind, address]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as flooding:
                assert flooding.stdout is not None
                flooding.stdout.readline()
                time.sleep(3)
                try:
                    flooded = asyncio.run(waits(address))
                finally:
                    flooding.kill()
            ratio = statistics.median(flooded) / statistics.median(usual)
            print(
                f"{count} {kind}: {statistics.median(usual):.2f} s usually (longest {max(usual):.2f}), "
                f"{statistics.median(flooded):.2f} s (longest {max(flooded):.2f}): {ratio:.2f} times",
                flush=True,
            )


if __name__ == "__main__":
    main()
