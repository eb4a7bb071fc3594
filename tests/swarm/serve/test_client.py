"""The official client of OpenAI, unchanged, against a real server."""

import asyncio
import math
import re
import socket
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import openai
import pytest

from swarm.serve.fake import TEXT, FakeSwarm
from swarm.serve.serving import PATIENCE, TOKEN, Served, connect, run_server, wait_until

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with run_server(FakeSwarm(lost_from=4), tokens=(TOKEN,), max_queued=64) as running:
        yield running


@pytest.fixture
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=TOKEN, max_retries=0) as made:
        yield made


@pytest.fixture
def held(server: Served) -> Iterator[FakeSwarm]:
    server.service.allowed = 1
    yield server.service
    server.service.allowed = math.inf


def test_completion_streaming(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="fake/model", prompt="a", max_tokens=40, stream=True, stop="\n", stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == TEXT.removesuffix("\n")
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == len(TEXT.encode())
    assert chunks[-1].model_extra["layerwise"]["expected_nats"]["basis"] == "measured"


def test_chat_completion(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="fake/model", messages=HELLO, max_completion_tokens=3)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("The", "length")
    assert answer.model_extra["layerwise"]["plan"] == "0-11"


def test_chat_streaming_is_incremental(client: openai.OpenAI, held: FakeSwarm) -> None:
    chunks = client.chat.completions.create(model="fake/model", messages=HELLO, max_tokens=500, stream=True)
    first = next(iter(chunks))
    assert first.choices[0].delta.role == "assistant"
    assert list(held.running.values()) == [1]  # it comes before the rest is made
    held.allowed = math.inf
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text.startswith(TEXT)


def test_the_client_raises_its_own_errors(client: openai.OpenAI, server: Served) -> None:
    with pytest.raises(openai.NotFoundError, match="other"):
        client.completions.create(model="other", prompt="a")
    with pytest.raises(openai.BadRequestError, match="n=2") as caught:
        client.completions.create(model="fake/model", prompt="a", n=2)
    assert (caught.value.param, caught.value.code) == ("n", "unsupported_value")
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_a_disconnect_cancels_the_request(client: openai.OpenAI, server: Served, held: FakeSwarm) -> None:
    before = len(held.cancelled)
    stream = client.completions.create(model="fake/model", prompt="a", max_tokens=1_000, stream=True)
    next(iter(stream))
    stream.close()
    wait_until(lambda: len(held.cancelled) == before + 1)

    async def request_and_disconnect() -> None:
        async with open_async_client(server.url) as other:
            asking = asyncio.create_task(other.completions.create(model="fake/model", prompt="a", max_tokens=1_000))
            while not held.running:
                await asyncio.sleep(0.01)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(request_and_disconnect())
    wait_until(lambda: len(held.cancelled) == before + 2)
    wait_until(lambda: not held.running)


@contextmanager
def open_request(url: str, head: bytes, body: bytes) -> Iterator[socket.socket]:
    with connect(url) as connection:
        first = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(first + head + b"\r\n\r\n" + body)
        yield connection


def count_queued(url: str) -> int:
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
        return int(float(re.search(r"^layerwise_requests_queued (\S+)$", answer.read().decode(), re.MULTILINE)[1]))


def test_a_full_queue_rejects_requests() -> None:
    body = b'{"prompt": "a", "max_tokens": 2}'
    head = b"Content-Length: %d" % len(body)
    with (
        run_server(FakeSwarm(allowed=1), max_running=1, max_queued=1) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
    ):
        first = client.completions.create(model="fake/model", prompt="a", max_tokens=1_000, stream=True)
        next(iter(first))
        with open_request(running.url, head, body):
            wait_until(lambda: count_queued(running.url) == 1)
        wait_until(lambda: count_queued(running.url) == 0)  # a disconnect frees its slot
        with open_request(running.url, head, body) as second:
            wait_until(lambda: count_queued(running.url) == 1)
            with pytest.raises(openai.RateLimitError, match="1 requests running") as caught:
                client.completions.create(model="fake/model", prompt="a")
            assert int(caught.value.response.headers["retry-after"]) >= 1
            first.close()
            running.service.allowed = math.inf
            assert second.recv(1_000).startswith(b"HTTP/1.1 200")  # the one that waited is next


@pytest.mark.parametrize(
    ("head", "body", "seconds", "status"),
    [
        (b"Content-Length: 10", b"{", 0.05, b"408"),
        (b"Content-Length: 2000000000", b"{", PATIENCE, b"413"),
        (b"Transfer-Encoding: chunked", b"ffffff\r\n" + b"x" * 5_000, PATIENCE, b"413"),
        (b"Content-Length: -1", b"{", PATIENCE, b"400"),
    ],
)
def test_an_endless_body_times_out(head: bytes, body: bytes, seconds: float, status: bytes) -> None:
    with (
        run_server(FakeSwarm(), body_seconds=seconds, max_body_bytes=4_000) as running,
        open_request(running.url, head, body) as connection,
    ):
        received = b""
        while part := connection.recv(4_096):  # until the server closes it
            received += part
    assert received.startswith(b"HTTP/1.1 " + status)


@asynccontextmanager
async def open_async_client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0, timeout=PATIENCE) as client:
        yield client


def test_64_clients_at_once(server: Served, held: FakeSwarm) -> None:
    async def one(client: openai.AsyncOpenAI) -> str:
        stream = await client.completions.create(model="fake/model", prompt="a", max_tokens=20, stream=True)
        return "".join([choice.text async for chunk in stream for choice in chunk.choices])

    async def main() -> list[str]:
        async with open_async_client(server.url) as client:
            answers = asyncio.gather(*(one(client) for _ in range(64)))
            while len(held.running) < 64:
                await asyncio.sleep(0.01)
            held.allowed = math.inf
            return await answers

    assert asyncio.run(main()) == ["The swarm goes on: "] * 64  # the 20th token is half of the next character
