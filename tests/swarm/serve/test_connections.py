"""Connections that send nothing, or a header without end, keep nobody else waiting; no end of a body is said twice."""

import socket
from contextlib import ExitStack

from swarm.serve.fake import FakeSwarm
from swarm.serve.serving import client, connected, eventually, served, stream

REQUEST = b"GET /live HTTP/1.1\r\nHost: localhost\r\n"


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_idle_connections_beyond_the_bound_are_closed_and_requests_answered() -> None:
    with served(FakeSwarm(), most_connections=64, most_of_address=16) as server, ExitStack() as opened:
        under_way = stream(server.url, 40)
        next(under_way)
        idle = [opened.enter_context(connected(server.url)) for _ in range(80)]
        assert list(stream(server.url, 3))[-1] == "[DONE]"
        assert all(is_closed(each) for each in idle[:60]), "the oldest ones"
        assert list(under_way)[-1] == "[DONE]", "what is answered is not cut off"


def test_a_connection_that_was_answered_outlives_those_that_never_had_a_request() -> None:
    with served(FakeSwarm(), most_of_address=8) as server, ExitStack() as opened, connected(server.url) as kept:
        for _ in range(2):
            kept.sendall(REQUEST + b"\r\n")
            answer = b""
            while not answer.endswith(b'{"live":true}'):
                part = kept.recv(1000)
                assert part, "it was closed"
                answer += part
            idle = [opened.enter_context(connected(server.url)) for _ in range(20)]
            assert all(is_closed(each) for each in idle[:10])


def test_the_bound_of_all_holds_where_that_of_an_address_does_not() -> None:
    with served(FakeSwarm(), most_connections=32, most_of_address=1000) as server, ExitStack() as opened:
        idle = [opened.enter_context(connected(server.url)) for _ in range(40)]
        assert list(stream(server.url, 3))[-1] == "[DONE]"
        assert is_closed(idle[0])


def test_a_request_is_not_refused_for_the_number_of_connections() -> None:
    with served(FakeSwarm(), most_connections=1) as server:
        assert list(stream(server.url, 3))[-1] == "[DONE]"


def test_a_header_has_its_time_however_slowly_it_comes() -> None:
    with (
        served(FakeSwarm(), header_seconds=0.3) as server,
        connected(server.url) as slow,
        connected(server.url) as silent,
    ):

        def trickles() -> bool:
            try:
                slow.sendall(b"X")
            except OSError:
                return True
            return False

        slow.sendall(REQUEST)
        eventually(trickles)
        assert is_closed(silent)
        with connected(server.url) as usual:
            for _ in range(2):  # the second request of a connection has its own time
                usual.sendall(REQUEST)
                usual.sendall(b"\r\n")
                answer = b""
                while not answer.endswith(b'{"live":true}'):
                    answer += usual.recv(1000)
                assert answer.startswith(b"HTTP/1.1 200")
            usual.sendall(REQUEST)
            assert is_closed(usual)


def test_a_body_whose_end_is_said_twice_is_refused_and_the_connection_closed() -> None:
    body = b"0\r\n\r\nGET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    header = (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with served(FakeSwarm()) as server, connected(server.url) as made:
        made.sendall(header % len(body) + body)
        answer = b""
        while part := made.recv(1000):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


def test_of_a_prompt_that_is_too_long_the_beginning_is_looked_at() -> None:
    service, read = FakeSwarm(max_length=100), []
    tokenizer = service.tokenizer

    class Counting:
        def __call__(self, text: str, **options: object) -> object:
            read.append(len(text))
            return tokenizer(text, **options)

        def __getattr__(self, name: str) -> object:
            return getattr(tokenizer, name)

        __len__ = tokenizer.__len__

    service.tokenizer = Counting()
    with client(service) as http:
        for path, body in (
            ("completions", {"prompt": "a" * 1_000_000}),
            ("chat/completions", {"messages": [{"role": "user", "content": "a" * 1_000_000}]}),
        ):
            answer = http.post(f"/v1/{path}", json=body)
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "context_length_exceeded"
            assert "the prompt has more than 100" in answer.json()["error"]["message"]
        assert max(read) == 1600
