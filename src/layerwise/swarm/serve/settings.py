"""Settings of the HTTP front end: address, limits and bearer tokens."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path

from layerwise.bounded import UnreadableError, read_bytes
from layerwise.errors import SwarmError
from layerwise.swarm.cluster.connection import is_loopback


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Settings of the HTTP server. Times are in seconds.

    Args:
        host: Address to listen on.
        port: Port; 0 is any free one.
        tokens: Bearer tokens, required unless `host` is a loopback address.
        temperature: Default temperature of a request.
        max_new_tokens: Maximum tokens of an answer.
        max_body_bytes: Maximum size of a request.
        max_image_pixels: Maximum size of an image, checked before decoding.
        max_running: Maximum number of running requests.
        max_queued: Maximum number of queued requests; further ones get status 429.
        max_connections: Maximum number of open connections; further ones get status 503.
        max_viewers: Maximum number of open live pages.
        body_seconds: Maximum time to receive a request.
        request_seconds: Maximum time to queue and answer a request; after that, it gets status 504.
        ready_seconds: Timeout of `/health`.
        keep_alive_seconds: Timeout of idle connections.
        drain_seconds: Time that running requests have to finish after a signal.
        close_seconds: Maximum time to stop the nodes.
        page_seconds: Refresh interval of the live page.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tokens: tuple[str, ...] = field(default=(), repr=False)
    temperature: float = 1.0
    max_new_tokens: int = 1024
    max_body_bytes: int = 4 * 2**20
    max_image_pixels: int = 2**24
    max_running: int = 64
    max_queued: int = 64
    max_connections: int = 1024
    max_viewers: int = 16
    body_seconds: float = 30.0
    request_seconds: float = 600.0
    ready_seconds: float = 5.0
    keep_alive_seconds: int = 30
    drain_seconds: float = 30.0
    close_seconds: float = 30.0
    page_seconds: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16:
            raise SwarmError(f"port must be between 0 (any free port) and 65535, got {self.port}.")
        if not 0 <= self.temperature <= 2:
            raise SwarmError(f"temperature must be between 0 and 2, got {self.temperature}.")
        may_be_zero = ("max_queued", "drain_seconds")
        for each in fields(self):
            if each.name.startswith("max_") or each.name.endswith("_seconds"):
                value = getattr(self, each.name)
                if not (value > 0 or (value == 0 and each.name in may_be_zero)):
                    least = "at least 0" if each.name in may_be_zero else "positive"
                    raise SwarmError(f"{each.name} must be {least}, got {value}.")


TOKENS_VARIABLE = "LAYERWISE_SWARM_TOKENS"
"""Environment variable with tokens, separated by whitespace or commas."""

MIN_TOKEN_LENGTH = 16
"""Minimum number of characters of a token, since shorter ones can be guessed."""

MAX_TOKEN_FILE_BYTES = 2**16

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


def read_tokens(path: Path | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Read tokens from a file (one per line, `#` starts a comment line) and from the environment variable.

    The command line is not used, because every user of the machine can read it. Raises `SwarmError` if the file is
    unreadable or has no token, or if a token is invalid.

    >>> read_tokens(None, {"LAYERWISE_SWARM_TOKENS": "0123456789abcdef, another-long-token"})
    ('0123456789abcdef', 'another-long-token')
    """
    tokens = re.split(r"[\s,]+", environment.get(TOKENS_VARIABLE, ""))
    if path is not None:
        try:
            lines = read_bytes(path, MAX_TOKEN_FILE_BYTES).decode("utf-8").splitlines()
        except (UnreadableError, UnicodeDecodeError) as error:
            raise SwarmError(f"The token file {path} {error}. Write one token per line.") from error
        lines = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not lines:
            raise SwarmError(f"The token file {path} has no token. Write one token per line.")
        tokens += lines
    unique = tuple(dict.fromkeys(token for token in tokens if token))
    for token in unique:
        if len(token) < MIN_TOKEN_LENGTH or not _TOKEN.fullmatch(token):
            raise SwarmError(
                f"A token must have at least {MIN_TOKEN_LENGTH} of the characters A-Z a-z 0-9 . _ ~ + / = -, got one "
                f"of {len(token)} characters. Generate one with `openssl rand -hex 24`."
            )
    return unique


def check_exposure(host: str, tokens: Sequence[str]) -> None:
    if not tokens and not is_loopback(host):
        raise SwarmError(
            f"--host {host} can be reached from other machines, so it requires an access token. Pass --token-file "
            f"FILE, set {TOKENS_VARIABLE}, or listen on 127.0.0.1."
        )


def is_allowed(authorization: str, tokens: Sequence[str]) -> bool:
    """Return True if the header `Authorization: Bearer TOKEN` has one of the tokens, compared in constant time.

    >>> is_allowed("Bearer 0123456789abcdef", ["0123456789abcdef"]), is_allowed("Bearer 0", ["0123456789abcdef"])
    (True, False)
    """
    scheme, _, shown = authorization.partition(" ")
    given = sha256(shown.strip().encode("utf-8", "surrogateescape")).digest()
    equal = [hmac.compare_digest(given, sha256(token.encode()).digest()) for token in tokens]
    return scheme.lower() == "bearer" and any(equal)


def is_loopback_header(host_header: str) -> bool:
    """Return True if a `Host` header names a loopback address.

    This prevents DNS rebinding: a web page can resolve its own name to 127.0.0.1, but the header still has that name.

    >>> is_loopback_header("127.0.0.1:8000"), is_loopback_header("[::1]:8000"), is_loopback_header("rebound.example")
    (True, True, False)
    """
    host = host_header.rsplit(":", 1)[0] if re.search(r":\d+$", host_header) else host_header
    return is_loopback(host)
