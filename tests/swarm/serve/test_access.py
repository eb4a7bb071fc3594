"""Access control and connection limits."""

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
    is_loopback_header,
    read_tokens,
)
from swarm.serve.fake import FakeSwarm
from swarm.serve.serving import TOKEN, client, connect, run_server, stream, wait_until

BEARER = {"Authorization": f"Bearer {TOKEN}"}


def test_tokens_from_file_and_environment(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# for Ada\n{TOKEN}\n\n  another_long-token.1 \n{TOKEN}\n")
    assert read_tokens(file, {}) == (TOKEN, "another_long-token.1")
    assert read_tokens(file, {"LAYERWISE_SWARM_TOKENS": " third-token-of-all\n"})[0] == "third-token-of-all"
    assert read_tokens(None, {}) == ()


@pytest.mark.parametrize("content", ["", "# nothing\n", "short\n", "has a space within it\n", "nicht-für-header-ü\n"])
def test_an_invalid_token_file_is_rejected(tmp_path: Path, content: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SwarmError, match="token") as caught:
        read_tokens(file, {})
    assert "within" not in str(caught.value)  # no secret is in an error


def test_an_unreadable_token_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"a" * 100_000)
    for name in ("bytes", "large", "missing", "."):
        with pytest.raises(SwarmError, match="token file"):
            read_tokens(tmp_path / name, {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.4", "example.org", "127.0.0.1.example.org"])
def test_public_addresses_need_a_token(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(SwarmError, match="requires an access token"):
        check_exposure(host, ())
    check_exposure(host, (TOKEN,))
    with pytest.raises(SwarmError), client(FakeSwarm(), host=host):
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    check_exposure(host, ())


def test_only_listed_tokens_are_accepted() -> None:
    tokens = (TOKEN, "another_long-token.1")
    assert is_allowed(f"bearer  {tokens[1]}", tokens)
    for wrong in ("", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer", "Bearer \udcff"):
        assert not is_allowed(wrong, tokens)
    assert not is_allowed("Bearer ", ())


def test_all_but_public_paths_need_a_token() -> None:
    with client(FakeSwarm(is_ready=(False, "node-3 is gone")), host="0.0.0.0", tokens=(TOKEN,)) as http:
        for path in (
            "/v1/models",
            "/metrics",
            "/swarm/events",
            "/swarm/overview",
            "/openapi.json",
            "/api/state",
            "/nothing",
        ):
            refused = http.get(path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
            assert refused.headers["www-authenticate"] == "Bearer"
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/classify"):
            assert http.post(path, json={}).status_code == 401
        assert http.get("/live").json() == {"live": True}
        assert http.get("/").status_code == 200
        assert http.get("/page/style.css").status_code == 200
        assert http.get("/health").json() == {"ready": False}
        assert http.get("/health", headers=BEARER).json() == {"ready": False, "reason": "node-3 is gone"}
        assert http.get("/v1/models", headers=BEARER).status_code == 200
        # With tokens the name in the address is free: other machines know this one by another.
        assert http.get("/v1/models", headers={**BEARER, "Host": "swarm.example"}).status_code == 200


def test_web_pages_cannot_use_a_server_without_tokens() -> None:
    assert is_loopback_header("localhost")
    assert not is_loopback_header("")
    with client(FakeSwarm()) as http:
        assert http.get("/v1/models").status_code == 200
        rebound = http.get("/v1/models", headers={"Host": "rebound.example:8000"})
        assert (rebound.status_code, rebound.json()["error"]["code"]) == (403, "unknown_host")
        foreign = http.get("/v1/models", headers={"Origin": "https://page.example"})
        assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "unknown_origin")
        assert http.get("/v1/models", headers={"Origin": "http://127.0.0.1"}).status_code == 200
        form = http.post("/v1/completions", content='{"prompt":"a"}', headers={"Content-Type": "text/plain"})
        assert form.status_code == 415


def test_settings_hide_tokens() -> None:
    assert TOKEN not in repr(ServeSettings(tokens=(TOKEN,)))


GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")


def test_documented_settings_match_the_code() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", GUIDE, re.MULTILINE))
    assert table == {each.name: repr(each.default) for each in fields(ServeSettings) if each.name != "tokens"}


def test_every_endpoint_is_on_the_page() -> None:
    paths = set(create_app(FakeSwarm(), ServeSettings()).openapi()["paths"]) - {
        "/",
        "/api/state",
        "/page/{name}",
        "/v1/models/{model}",
    }
    assert {path for path in paths if f"{path}`" not in GUIDE} == set()


REQUEST = b"GET /live HTTP/1.1\r\nHost: localhost\r\n"


def test_too_many_connections_are_refused() -> None:
    with run_server(FakeSwarm(), max_connections=4) as server:
        with ExitStack() as opened:
            for _ in range(4):
                opened.enter_context(connect(server.url)).sendall(REQUEST)
            with pytest.raises(urllib.error.HTTPError, match="503"):
                list(stream(server.url, 3))
        wait_until(lambda: is_answering(server.url))


def is_answering(url: str) -> bool:
    try:
        return list(stream(url, 3))[-1] == "[DONE]"
    except urllib.error.HTTPError:
        return False


def test_conflicting_length_headers_close_the_connection() -> None:
    body = b"0\r\n\r\nGET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    header = (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with run_server(FakeSwarm()) as server, connect(server.url) as made:
        made.sendall(header % len(body) + body)
        answer = b""
        while part := made.recv(1000):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1
