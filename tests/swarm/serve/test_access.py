"""Who may connect, how often and for how long."""

import re
import urllib.error
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path

import pytest

from layerwise.errors import SwarmError
from layerwise.swarm.serve.app import create_app
from layerwise.swarm.serve.settings import (
    ServeSettings,
    check_exposure,
    is_allowed,
    is_loopback,
    names_this_machine,
    read_tokens,
)
from swarm.serve.fake import FakeSwarm
from swarm.serve.serving import TOKEN, client, connected, eventually, served, stream

BEARER = {"Authorization": f"Bearer {TOKEN}"}


def test_tokens_of_a_file_and_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# for Ada\n{TOKEN}\n\n  another_long-token.1 \n{TOKEN}\n")
    assert read_tokens(file, {}) == (TOKEN, "another_long-token.1")
    assert read_tokens(file, {"LAYERWISE_SWARM_TOKENS": " third-token-of-all\n"})[0] == "third-token-of-all"
    assert read_tokens(None, {}) == ()


@pytest.mark.parametrize("content", ["", "# nothing\n", "short\n", "has a space within it\n", "nicht-für-header-ü\n"])
def test_a_file_without_a_proper_token_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SwarmError, match="write") as caught:
        read_tokens(file, {})
    assert "within" not in str(caught.value)  # no secret is in an error


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"a" * 100_000)
    for name in ("bytes", "large", "missing", "."):
        with pytest.raises(SwarmError, match="file of tokens"):
            read_tokens(tmp_path / name, {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.4", "example.org", "127.0.0.1.example.org"])
def test_an_address_for_others_needs_a_token(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(SwarmError, match="no token for access is set"):
        check_exposure(host, ())
    check_exposure(host, (TOKEN,))
    with pytest.raises(SwarmError), client(FakeSwarm(), host=host):
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    assert is_loopback(host)
    check_exposure(host, ())


def test_only_a_token_of_the_list_opens() -> None:
    tokens = (TOKEN, "another_long-token.1")
    assert is_allowed(f"bearer  {tokens[1]}", tokens)
    for wrong in ("", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer", "Bearer \udcff"):
        assert not is_allowed(wrong, tokens)
    assert not is_allowed("Bearer ", ())


def test_everything_but_three_paths_needs_the_token() -> None:
    with client(FakeSwarm(is_ready=(False, "node-3 is gone")), host="0.0.0.0", tokens=(TOKEN,)) as http:
        for path in ("/v1/models", "/metrics", "/swarm/events", "/swarm/overview", "/openapi.json", "/", "/nothing"):
            refused = http.get(path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
            assert refused.headers["www-authenticate"] == "Bearer"
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/classify"):
            assert http.post(path, json={}).status_code == 401
        assert http.get("/live").json() == {"live": True}
        assert http.get("/swarm").status_code == 200
        assert http.get("/health").json() == {"ready": False}
        assert http.get("/health", headers=BEARER).json() == {"ready": False, "reason": "node-3 is gone"}
        assert http.get("/v1/models", headers=BEARER).status_code == 200
        # With tokens the name in the address is free: other machines know this one by another.
        assert http.get("/v1/models", headers={**BEARER, "Host": "swarm.example"}).status_code == 200


def test_a_web_page_cannot_use_a_server_without_tokens() -> None:
    assert names_this_machine("localhost")
    assert not names_this_machine("")
    with client(FakeSwarm()) as http:
        assert http.get("/v1/models").status_code == 200
        rebound = http.get("/v1/models", headers={"Host": "rebound.example:8000"})
        assert (rebound.status_code, rebound.json()["error"]["code"]) == (403, "unknown_host")
        form = http.post("/v1/completions", content='{"prompt":"a"}', headers={"Content-Type": "text/plain"})
        assert form.status_code == 415


def test_settings_show_no_token() -> None:
    assert TOKEN not in repr(ServeSettings(tokens=(TOKEN,)))


GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")


def test_the_settings_are_those_of_the_code() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", GUIDE, re.MULTILINE))
    assert table == {each.name: repr(each.default) for each in fields(ServeSettings) if each.name != "tokens"}


def test_every_setting_is_described_where_it_is_defined() -> None:
    described = set(re.findall(r"`(\w+)`", ServeSettings.__doc__ or ""))
    assert described == {each.name for each in fields(ServeSettings)}


def test_every_endpoint_is_on_the_page() -> None:
    paths = set(create_app(FakeSwarm(), ServeSettings()).openapi()["paths"]) - {"/", "/v1/models/{model}"}
    assert {path for path in paths if f"{path}`" not in GUIDE} == set()


REQUEST = b"GET /live HTTP/1.1\r\nHost: localhost\r\n"


def test_requests_are_refused_while_too_many_connections_are_open() -> None:
    with served(FakeSwarm(), most_connections=4) as server:
        with ExitStack() as opened:
            for _ in range(4):
                opened.enter_context(connected(server.url)).sendall(REQUEST)
            with pytest.raises(urllib.error.HTTPError, match="503"):
                list(stream(server.url, 3))
        eventually(lambda: answers(server.url))


def answers(url: str) -> bool:
    try:
        return list(stream(url, 3))[-1] == "[DONE]"
    except urllib.error.HTTPError:
        return False


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
