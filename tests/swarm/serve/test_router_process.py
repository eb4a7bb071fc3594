"""Responses resume with the same tokens after a router failure (routers are tasks here)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import pytest

from layerwise.errors import BelowQuorumError, SwarmError
from layerwise.swarm.answer import Answer, Decoding
from layerwise.swarm.serve import router_loop, router_process
from layerwise.swarm.serve.router_loop import serve_router
from layerwise.swarm.serve.router_process import MAX_ROUTER_FAILURES, RouterProcess, RunningRouter
from swarm.serve.fake import LOST, FakeSwarm, byte_tokenizer
from swarm.serve.serving import PATIENCE, run_async

PROMPT = (5, 6, 7)
SCRIPT = tuple(byte_tokenizer()(FakeSwarm.text, add_special_tokens=False)["input_ids"])


@dataclass(eq=False)
class TaskRouter(RunningRouter):
    task: asyncio.Task[int] | None = None
    channel: socket.socket | None = None
    lingers: float = 0.0

    @classmethod
    async def of(cls, gather: Callable[[], Awaitable[FakeSwarm]]) -> TaskRouter:
        here, there = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=here)
        task = asyncio.ensure_future(serve_router(gather, there))
        return cls(reader, writer, task=task, channel=there)

    async def wait_closed(self) -> int:
        await asyncio.sleep(self.lingers)
        with suppress(asyncio.CancelledError):
            return await self.task
        return -9

    def kill(self) -> None:
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_RDWR)
        self.task.cancel()


@dataclass
class Routers:
    swarms: Iterator[FakeSwarm | Exception]

    def __post_init__(self) -> None:
        self.started: list[TaskRouter] = []

    async def start(self) -> RunningRouter:
        swarm = next(self.swarms)

        async def gather() -> FakeSwarm:
            if isinstance(swarm, Exception):
                raise swarm
            return swarm

        self.started.append(await TaskRouter.of(gather))
        return self.started[-1]

    def kill(self) -> None:
        self.started[-1].kill()


@asynccontextmanager
async def run_behind_routers(*swarms: FakeSwarm | Exception) -> AsyncIterator[tuple[RouterProcess, Routers]]:
    routers = Routers(iter(swarms))
    service = RouterProcess(routers.start, byte_tokenizer, close_seconds=PATIENCE)
    await service.start()
    try:
        yield service, routers
    finally:
        await service.close()
        assert all(router.task.done() for router in routers.started)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_process, "MAX_RESTART_WAIT", 0.0)
    monkeypatch.setattr(router_loop, "OVERVIEW_SECONDS", 0.01)


async def write_answer(
    service: RouterProcess, decoding: Decoding, happens: Callable[[int], None] = lambda count: None
) -> tuple[list[int], Answer]:
    tokens: list[int] = []
    async with asyncio.timeout(PATIENCE):
        async for item in service.stream(PROMPT, decoding, request="a"):
            if isinstance(item, Answer):
                return tokens, item
            tokens.append(item)
            happens(len(tokens))
    raise AssertionError("the stream ended without an answer")


def at(number: int, act: Callable[[], None]) -> Callable[[int], None]:
    return lambda count: act() if count == number else None


def answered(*swarms: FakeSwarm, decoding: Decoding, killed: int | None = None) -> tuple[list[int], Answer]:
    async def main() -> tuple[list[int], Answer]:
        async with run_behind_routers(*swarms) as (service, routers):
            return await write_answer(service, decoding, at(killed or 0, routers.kill))

    return asyncio.run(main())


@pytest.mark.parametrize("killed", [1, 2, 11, 20])
def test_answers_resume_after_a_router_failure(killed: int) -> None:
    first, second = FakeSwarm(allowed=killed), FakeSwarm()
    tokens, answer = answered(first, second, decoding=Decoding(20), killed=killed)
    assert tuple(tokens) == answer.tokens == SCRIPT[:20]
    assert answer.is_complete
    assert [(span.start, span.stop) for span in answer.spans] == [(0, 20)]
    assert second.resumed == ([SCRIPT[: killed - 1]] if killed < 20 else [])


@run_async
async def test_requests_during_a_restart_go_to_the_next_router() -> None:
    async with run_behind_routers(FakeSwarm(), FakeSwarm()) as (service, routers):
        routers.started[0].lingers = 0.1
        routers.kill()
        while not routers.started[0].is_over:
            await asyncio.sleep(0)
        assert (await service.ready())[0] is False
        assert tuple((await write_answer(service, Decoding(4)))[0]) == SCRIPT[:4]


def test_a_request_without_a_seed_gets_one_for_all_routers() -> None:
    first, second = FakeSwarm(allowed=3), FakeSwarm()
    answered(first, second, decoding=Decoding(9, temperature=1.0), killed=3)
    seeds = [decoding.seed for swarm in (first, second) for _, decoding in swarm.prompts]
    assert seeds[0] is not None
    assert seeds[0] == seeds[1]


def test_sent_tokens_are_kept_if_a_second_router_differs() -> None:
    """The last sent token is recomputed and differs, so the answer continues after it."""
    first, second = FakeSwarm(allowed=3), FakeSwarm(text="another text", lost_from=0)
    tokens, answer = answered(first, second, decoding=Decoding(6), killed=3)
    other = byte_tokenizer()("another text", add_special_tokens=False)["input_ids"]
    assert tokens == [*SCRIPT[:3], *other[3:6]]
    assert second.resumed == [SCRIPT[:2], SCRIPT[:3]]
    assert [(span.start, span.stop, span.missing) for span in answer.spans] == [(0, 3, ()), (3, 6, (4, 5))]


def test_missing_layers_are_reported_across_routers() -> None:
    first = FakeSwarm(allowed=5, lost_from=2)
    _, answer = answered(first, FakeSwarm(), decoding=Decoding(8), killed=5)
    spans = [(span.start, span.stop, span.missing, span.earlier) for span in answer.spans]
    assert spans == [(0, 2, (), ()), (2, 4, (4, 5), ()), (4, 8, (), (4, 5))]
    assert answer.spans[1].expected == LOST


@run_async
async def test_a_request_that_kills_routers_fails() -> None:
    async with run_behind_routers(*(FakeSwarm() for _ in range(MAX_ROUTER_FAILURES + 1))) as (service, routers):
        with pytest.raises(SwarmError, match=f"{MAX_ROUTER_FAILURES} routers failed while answering request a"):
            await write_answer(service, Decoding(600), lambda count: routers.kill())
        tokens, _ = await write_answer(service, Decoding(4))
        assert tuple(tokens) == SCRIPT[:4]


@run_async
async def test_answers_resume_after_a_cluster_failure() -> None:
    """Regression: after all nodes failed, every later request was refused."""
    first = FakeSwarm(allowed=3, failures={4: BelowQuorumError("0 of 12 layers are live")})

    def lose() -> None:
        first.is_over, first.allowed = True, 9

    async with run_behind_routers(first, FakeSwarm()) as (service, _):
        tokens, answer = await write_answer(service, Decoding(9), at(3, lose))
        assert tuple(tokens) == SCRIPT[:9]
        assert answer.is_complete
        assert service.overview().events[-2].kind == "returned"


@run_async
async def test_swarm_errors_cross_the_router_process() -> None:
    async with run_behind_routers(
        FakeSwarm(failures={2: BelowQuorumError("3 layers are left")}, is_ready=(False, "no"))
    ) as (
        service,
        _,
    ):
        with pytest.raises(BelowQuorumError, match="3 layers are left"):
            await write_answer(service, Decoding(4))
        assert await service.ready() == (False, "no")


@run_async
async def test_a_prompt_is_scored_by_the_next_router() -> None:
    async with run_behind_routers(FakeSwarm(), FakeSwarm()) as (service, routers):
        first = await service.score(PROMPT, request="a")
        routers.kill()
        assert await service.score(PROMPT, request="b") == (first[0], replace(first[1], request="b"))


@run_async
async def test_closing_a_stream_cancels_it_at_the_router() -> None:
    swarm = FakeSwarm(allowed=2)
    async with run_behind_routers(swarm) as (service, _), asyncio.timeout(PATIENCE):
        stream = service.stream(PROMPT, Decoding(9), request="a")
        await anext(stream)
        await stream.aclose()
        while swarm.running:
            await asyncio.sleep(0.001)
    assert swarm.cancelled == ["a/0"]


def test_a_router_start_failure_reports_the_reason() -> None:
    async def main() -> None:
        async with run_behind_routers(SwarmError("no node has memory for layer 3")):
            raise AssertionError

    with pytest.raises(SwarmError, match="layer 3"):
        asyncio.run(main())


def test_requests_are_refused_until_a_router_starts() -> None:
    refusals = [SwarmError(f"refusal {number}") for number in range(5)]

    async def main() -> str:
        async with run_behind_routers(FakeSwarm(allowed=1), *refusals, FakeSwarm()) as (service, routers):
            with pytest.raises(SwarmError, match=r"could not be restarted: refusal [2-4]"):
                await write_answer(service, Decoding(9), at(1, routers.kill))
            ready, reason = await service.ready()
            assert not ready
            while not (await service.ready())[0]:
                await asyncio.sleep(0.001)
            tokens, _ = await write_answer(service, Decoding(4))
            assert tuple(tokens) == SCRIPT[:4]
            return reason

    assert asyncio.run(main()).startswith("the router is restarting: refusal")


def test_a_hung_router_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_process, "MAX_SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(router_loop, "OVERVIEW_SECONDS", 3600.0)
    tokens, _ = answered(FakeSwarm(allowed=3), *(FakeSwarm() for _ in range(50)), decoding=Decoding(9))
    assert tuple(tokens) == SCRIPT[:9]


@run_async
async def test_the_overview_shows_router_restarts() -> None:
    async with run_behind_routers(FakeSwarm(seconds=0), SwarmError("no"), FakeSwarm(seconds=0)) as (service, routers):
        assert {node.state for node in service.overview().nodes} == {"live"}
        routers.kill()
        while service.overview().live_layers:
            await asyncio.sleep(0)
        assert {node.state for node in service.overview().nodes} == {"gone"}
        while not (await service.ready())[0]:
            await asyncio.sleep(0.001)
        overview = service.overview()
        assert overview.live_layers == tuple(range(12))
        assert [event.kind for event in overview.events] == ["joined", "lost", "returned", "joined"]
        assert overview.events[1].text == "the router exited (SIGKILL) and is restarting"
        assert [event.seconds for event in overview.events] == sorted(event.seconds for event in overview.events)
