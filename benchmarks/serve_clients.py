"""Many clients at once against the server of a swarm: requests, errors, latency, and how its memory grows.

    python benchmarks/serve_clients.py                                  # 64 clients for 60 s, on a double
    python benchmarks/serve_clients.py --model demo --tokens 8          # on a swarm of four nodes in one process
    python benchmarks/serve_clients.py --url http://127.0.0.1:8000 --model demo    # against a server that runs

The clients are the official `openai` package: streams and answers in one piece, completions and chats, in turns. The
double writes a token every 10 ms without any model, so that what is measured is the server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import layerwise
from layerwise.swarm.answer import Answer, Decoding, NodeView, Overview, TokenSpan
from layerwise.swarm.serve.run import run
from layerwise.swarm.serve.settings import ServeSettings

WARM_UP = 0.25  # of the time, after which memory is taken as it is
DOUBLE = "double"


class Double:
    """Writes the letters from a to z, over and over, one every `delay` seconds."""

    name, max_length, labels = DOUBLE, None, ()

    def __init__(self, delay: float) -> None:
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(Path(layerwise.__file__).parent / "models" / "demo")
        self._delay, self._made, self._completed = delay, 0, 0
        self._script = self.tokenizer(" ".join("abcdefghijklmnopqrstuvwxyz"))["input_ids"]

    async def stream(
        self, ids: Sequence[int], decoding: Decoding, *, request: str
    ) -> AsyncGenerator[int | Answer, None]:
        made = []
        for count in range(decoding.max_new_tokens):
            await asyncio.sleep(self._delay)
            made.append(self._script[count % len(self._script)])
            yield made[-1]
        self._made += len(made)
        self._completed += 1
        yield Answer(request, tuple(made), "length", (TokenSpan(0, len(made), "0-11"),))

    def overview(self) -> Overview:
        nodes = (NodeView("node-0", tuple(map(str, range(12))), "live", 0.01, 0.02, 0, self._made, 0),)
        layers = tuple(range(12))
        return Overview(self.name, 12, 0.0, nodes, (), self._completed, 0, 0, self._made, layers, "", ())

    def pixels(self, image: Any) -> Any:
        raise NotImplementedError

    async def classify(self, pixel_values: Any, *, request: str) -> tuple[Sequence[float], Answer]:
        raise NotImplementedError

    async def ready(self) -> tuple[bool, str]:
        return True, ""

    async def close(self) -> None:
        pass


def serve(model: str, delay: float) -> int:
    """Serve the double, or a swarm of a model, on a free port, and print its address."""

    async def gathered_service() -> Any:
        if model == DOUBLE:
            return Double(delay)
        from layerwise.swarm.gathering import gathered

        return await gathered(layerwise.load(model), nodes=4, replicas=2)

    return run(gathered_service, ServeSettings(port=0), lambda url: print(url, flush=True))


async def clients(
    url: str, model: str, token: str, count: int, seconds: float, length: int, memory: Callable[[], float | None]
) -> None:
    """Run the clients side by side, and print what became of their requests."""
    import openai

    ended, errors, tokens, first, whole = 0, Counter[str](), 0, [], []
    resident: list[float] = []
    end = time.perf_counter() + seconds

    async def one(client: openai.AsyncOpenAI, turn: int) -> None:
        nonlocal ended, tokens
        while time.perf_counter() < end:
            began, turn = time.perf_counter(), turn + 1
            chat, stream = turn % 2 == 0, turn % 4 < 3
            try:
                kind: Any = client.chat.completions if chat else client.completions
                prompt = {"messages": [{"role": "user", "content": "Hello"}]} if chat else {"prompt": "Hello"}
                answer = await kind.create(model=model, max_tokens=length, stream=stream, **prompt)
                if stream:
                    chunks = [await anext(answer)]
                    first.append(time.perf_counter() - began)
                    chunks += [chunk async for chunk in answer]
                    answer = chunks[-1]
                assert answer.model_extra["layerwise"]["plan"], "no plan"
                ended += 1
                tokens += length if stream else answer.usage.completion_tokens
                whole.append(time.perf_counter() - began)
            except Exception as error:
                errors[f"{type(error).__name__}: {str(error)[:80]}"] += 1

    async def watch() -> None:
        while time.perf_counter() < end:
            await asyncio.sleep(1)
            if (now := memory()) is not None:
                resident.append(now)

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0, timeout=120) as client:
        await asyncio.gather(watch(), *(one(client, turn) for turn in range(count)))
    rate = tokens / seconds
    print(f"{count} clients, {seconds:g} s: {ended} answers, {rate:.0f} tokens/s, {sum(errors.values())} errors")
    for message, times in errors.most_common(5):
        print(f"  {times} x {message}")
    for name, values in (("first event", first), ("whole answer", whole)):
        cuts = statistics.quantiles(values, n=100)
        print(f"{name}: median {cuts[49] * 1e3:.0f} ms, 99th percentile {cuts[98] * 1e3:.0f} ms")
    if resident:
        warm = resident[int(len(resident) * WARM_UP) :]
        slope = statistics.linear_regression(range(len(warm)), warm).slope
        print(
            f"resident memory of the server: {resident[0]:.1f} MiB at first, {warm[0]:.1f} warm, {warm[-1]:.1f} at the "
            f"end ({slope * 60:+.2f} MiB a minute once warm)"
        )


def resident_of(process: int) -> float | None:
    """The resident memory of a process, in MiB."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a server that runs; without it a double is served")
    parser.add_argument("--model", default=DOUBLE)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--delay", type=float, default=0.01, help="seconds between two tokens of the double")
    parser.add_argument("--tokens", type=int, default=48, help="of each answer")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.model, options.delay)
    token = os.environ.get("LAYERWISE_SWARM_TOKENS", "none").split(",")[0].strip()
    load = (options.model, token, options.clients, options.seconds, options.tokens)
    if options.url:
        asyncio.run(clients(options.url, *load, lambda: None))
        return 0
    command = [sys.executable, __file__, "--serve", "--model", options.model, "--delay", str(options.delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        asyncio.run(clients(server.stdout.readline().strip(), *load, lambda: resident_of(server.pid)))
        server.terminate()
        server.wait(60)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"the server took {used.ru_utime + used.ru_stime:.1f} s of processor time; status {server.returncode}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
