"""Test fresh servers under waves of streams without faults, disconnecting clients, and eight parallel streams.

    python benchmarks/serve_waves.py --servers 20      # 72 streams of 150 tokens each: 8, 16, 16 and 32 at once
    python benchmarks/serve_waves.py --leave 400       # disconnected requests, and the memory afterwards
    python benchmarks/serve_waves.py --together 3     # eight streams on two nodes relative to one

Answers are greedy. It counts answers with missing layers or incomplete plans, and compares
the answers to each prompt over waves, and to four prompts alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil

WAVES, TOKENS, AT_ONCE = (8, 16, 16, 32), 150, 8
PROMPTS = [f"reverse k d a z {chr(97 + n % 26)} {chr(97 + n * 7 % 26)} =" for n in range(max(WAVES))]


@contextmanager
def served(model: str, *more: str) -> Iterator[tuple[str, psutil.Process]]:
    """Start a server; return its address and process."""
    command = [sys.executable, "-m", "layerwise", "serve", model, "--port", "0", *more]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        assert server.stdout is not None
        address = next(match[1] for line in server.stdout if (match := re.search(r"(http://\S+)/v1", line)))
        yield address, psutil.Process(server.pid)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(90)


async def ask(client: httpx.AsyncClient, prompt: str, tokens: int, **more: Any) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": tokens, "min_tokens": tokens, "temperature": 0}
    answer = await client.post("/v1/completions", json=body, **more)
    return {"status": answer.status_code, **answer.json()}


async def waves(address: str) -> None:
    texts: dict[str, set[str]] = defaultdict(set)
    degraded = refused = 0
    began = time.perf_counter()
    async with httpx.AsyncClient(base_url=address, timeout=1200) as client:
        for wave in WAVES:
            for prompt, answer in zip(
                PROMPTS, await asyncio.gather(*(ask(client, each, TOKENS) for each in PROMPTS[:wave])), strict=False
            ):
                if answer["status"] != 200:
                    refused += 1
                    continue
                swarm = answer["layerwise"]
                degraded += bool(swarm["missing"]) or swarm["expected_nats"]["basis"] != "complete"
                texts[prompt].add(answer["choices"][0]["text"])
        pace = sum(WAVES) * TOKENS / (time.perf_counter() - began)
        alone = [texts[each] == {(await ask(client, each, TOKENS))["choices"][0]["text"]} for each in PROMPTS[::8]]
    unlike = sum(len(each) > 1 for each in texts.values())
    print(
        f"{degraded} of {sum(WAVES)} degraded, {refused} refused, {unlike} prompts answered differently, {sum(alone)} "
        f"of {len(alone)} as alone; {pace:.0f} tokens per second, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def memory(server: psutil.Process) -> str:
    below = {each: " ".join(each.cmdline()) for each in server.children(recursive=True)}
    parts = {"server": [server], "router": [each for each, words in below.items() if "-m layerwise serve" in words]}
    parts["nodes at most"] = [each for each, words in below.items() if "NodeActor" in words]
    most = {name: max(each.memory_info().rss for each in processes) for name, processes in parts.items()}
    return ", ".join(f"{name} {size / 2**20:.0f} MB" for name, size in most.items())


async def leave(address: str, router: psutil.Process, count: int) -> None:
    draw = random.Random(0)

    async def one(client: httpx.AsyncClient, seconds: float) -> bool:
        try:
            await ask(client, "".join(draw.choice("abcdefgh ") for _ in range(250)), 64, timeout=seconds)
        except httpx.TimeoutException:
            return True
        return False

    async with httpx.AsyncClient(base_url=address, timeout=600) as client:
        await asyncio.gather(*(one(client, 600) for _ in range(AT_ONCE)))
        print(f"before: {memory(router)}", flush=True)
        cut = 0
        for _ in range(0, count, AT_ONCE):
            cut += sum(await asyncio.gather(*(one(client, draw.uniform(0.02, 1.5)) for _ in range(AT_ONCE))))
        await one(client, 600)
        print(f"after {cut} of {count} requests were cut: {memory(router)}")


async def together(address: str, turns: int) -> None:
    async with httpx.AsyncClient(base_url=address, timeout=1200) as client:

        async def paced(prompts: list[str]) -> tuple[float, list[str]]:
            began = time.perf_counter()
            answers = await asyncio.gather(*(ask(client, each, 100) for each in prompts))
            texts = [answer["choices"][0]["text"] for answer in answers]
            return len(prompts) * 100 / (time.perf_counter() - began), texts

        alone = [(await paced([each]))[1][0] for each in PROMPTS[:AT_ONCE]]
        for _ in range(turns):
            one, _ = await paced(PROMPTS[:1])
            many, texts = await paced(PROMPTS[:AT_ONCE])
            same = sum(each == own for each, own in zip(texts, alone, strict=True))
            print(
                f"one stream {one:.0f} tokens per second, {AT_ONCE} streams {many:.0f}: {many / one:.2f} times, "
                f"{same} as alone",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--leave", type=int, default=0, metavar="N")
    parser.add_argument("--together", type=int, default=0, metavar="N")
    parser.add_argument("--replicas", default="2", help="of --together, on two nodes")
    options = parser.parse_args()
    if options.together:
        with served(options.model, "--nodes", "2", "--replicas", options.replicas) as (address, _):
            asyncio.run(together(address, options.together))
        return
    for _ in range(options.servers):
        with served(options.model) as (address, router):
            asyncio.run(leave(address, router, options.leave) if options.leave else waves(address))


if __name__ == "__main__":
    main()
