"""Half of the nodes of a swarm on Ray die while it answers: eight processes, eight streams, two hundred requests.

    python benchmarks/swarm_half_dead.py

Two of the eight are ended by SIGKILL and two are stopped by SIGSTOP, none of them with the last replica of a layer.
Every request is answered whole, with the tokens of the undisturbed model, and the slowest token takes no longer than
the bound that is printed beforehand.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import time

import torch

from layerwise.stack import load
from layerwise.swarm import Answer, Swarm, SwarmSettings, gather
from layerwise.swarm.answer import Decoding
from layerwise.swarm.cluster.nodes import RayTransport
from layerwise.swarm.rehearsal import Load, slowest_token

PROMPT = 8


async def stream(swarm: Swarm, ids: list[int], tokens: int, gaps: list[float], request: str) -> Answer:
    answer, since = None, time.perf_counter()
    async for item in swarm.stream(ids, Decoding(tokens, tokens), request=request):
        if isinstance(item, Answer):
            answer = item
            continue
        gaps.append(time.perf_counter() - since)
        since = time.perf_counter()
    assert answer is not None
    return answer


async def rehearse(
    swarm: Swarm, transport: RayTransport, options: argparse.Namespace
) -> tuple[list[Answer], list[float]]:
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(5, 500, (options.requests, PROMPT), generator=generator).tolist()
    gaps: list[float] = []
    free = asyncio.Semaphore(options.streams)
    done = 0

    async def one(number: int) -> Answer:
        nonlocal done
        async with free:
            answer = await stream(swarm, prompts[number], options.tokens, gaps, f"request-{number}")
        done += 1
        return answer

    async def deaths() -> None:
        kill, stop = signal.SIGKILL, signal.SIGSTOP
        chosen = [("node-0", kill), ("node-5", stop), ("node-2", kill), ("node-7", stop)]
        for number, (name, how) in enumerate(chosen, start=1):
            while done < options.requests * number // 6:
                await asyncio.sleep(0.02)
            os.kill(transport.processes[name][1], how)
            print(f"{swarm.members.seconds:6.1f} s  {how.name} {name}, {done} requests done", flush=True)

    killing = asyncio.create_task(deaths())
    answers = await asyncio.gather(*(one(number) for number in range(options.requests)))
    await killing
    return list(answers), gaps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)
    stack = load("demo")
    settings = SwarmSettings()
    swarm = gather(stack, 8, 2, address="local", settings=settings)
    swarm.generate(torch.randint(5, 500, (1, PROMPT)), max_new_tokens=40, min_new_tokens=40, do_sample=False)
    hop, layer = (max(getattr(record, name) for record in swarm.members) for name in ("hop_seconds", "layer_seconds"))
    load_of_swarm = Load(options.streams, 12, 3, PROMPT, options.tokens, hop, layer)
    print(f"bound of the slowest token: {slowest_token(load_of_swarm, settings, 4):.1f} s", flush=True)
    transport = swarm._transport
    assert isinstance(transport, RayTransport)
    try:
        answers, gaps = swarm.run(rehearse(swarm, transport, options))
        generator = torch.Generator().manual_seed(0)
        prompts = torch.randint(5, 500, (options.requests, PROMPT), generator=generator)
        equal = 0
        for ids, answer in zip(prompts, answers, strict=True):
            with torch.inference_mode():
                own = stack.model.generate(
                    ids[None],
                    attention_mask=torch.ones(1, PROMPT, dtype=torch.long),
                    do_sample=False,
                    max_new_tokens=options.tokens,
                    min_new_tokens=options.tokens,
                )
            equal += own[0, PROMPT:].tolist() == list(answer.tokens)
        whole = sum(len(answer.tokens) == options.tokens and not answer.missing for answer in answers)
        for event in swarm.members.events:
            if event.kind in ("lost", "late", "quarantined"):
                print(f"{event.seconds:6.1f} s  {event.kind}: {event.text}")
        gaps.sort()
        print(f"{whole} of {len(answers)} answered whole, {equal} with the tokens of the undisturbed model")
        print(
            f"token: median {1000 * statistics.median(gaps):.0f} ms, 99th percentile "
            f"{1000 * gaps[int(0.99 * len(gaps))]:.0f} ms, slowest {gaps[-1]:.2f} s"
        )
    finally:
        for name in ("node-5", "node-7"):
            try:
                os.kill(transport.processes[name][1], signal.SIGCONT)
            except ProcessLookupError:
                continue
        swarm.shut_down()


if __name__ == "__main__":
    main()
