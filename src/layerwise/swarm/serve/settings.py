"""Settings of the HTTP front end: address, limits, and bearer tokens (required beyond loopback)."""

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
    """How a swarm is served. Times are in seconds; everything that a client could make large has a bound.

    `host`, `port`          the address; port 0 is any free one
    `tokens`                the bearer tokens for access; without one every client is let in, on loopback alone
    `temperature`           of a request that names none; 1 is the default of OpenAI's API
    `most_new_tokens`       of one answer
    `most_body_bytes`       of a request, counted while it is read
    `most_image_pixels`     of an image, checked before it is decoded
    `most_running`          requests that are answered at a time
    `most_queued`           requests that wait for one of these to end; one more is refused with 429
    `most_connections`      open connections; while there are more, requests are answered with 503
    `most_viewers`          live pages that are open
    `body_seconds`          within which a request has arrived whole
    `request_seconds`       within which it is answered whole, its wait included; else 504
    `ready_seconds`         that `/health` waits for a token
    `keep_alive_seconds`    that an idle connection stays open
    `drain_seconds`         that requests under way have left when the server is stopped
    `close_seconds`         that the nodes have to stop
    `page_seconds`          between two looks at the swarm, for the live page
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tokens: tuple[str, ...] = field(default=(), repr=False)
    temperature: float = 1.0
    most_new_tokens: int = 1024
    most_body_bytes: int = 4 * 2**20
    most_image_pixels: int = 2**24
    most_running: int = 64
    most_queued: int = 64
    most_connections: int = 1024
    most_viewers: int = 16
    body_seconds: float = 30.0
    request_seconds: float = 600.0
    ready_seconds: float = 5.0
    keep_alive_seconds: int = 30
    drain_seconds: float = 30.0
    close_seconds: float = 30.0
    page_seconds: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16:
            raise SwarmError(f"port {self.port} does not exist; write a number from 0 (any free port) to 65535")
        if not 0 <= self.temperature <= 2:
            raise SwarmError(f"temperature is {self.temperature}; write a number from 0 to 2")
        may_be_zero = ("most_queued", "drain_seconds")
        for each in fields(self):
            if each.name.startswith("most_") or each.name.endswith("_seconds"):
                value = getattr(self, each.name)
                if not (value > 0 or (value == 0 and each.name in may_be_zero)):
                    raise SwarmError(f"{each.name} is {value}; write a positive number")


VARIABLE = "LAYERWISE_SWARM_TOKENS"
"""The environment variable with tokens, separated by white space or commas."""

LEAST_CHARACTERS = 16
"""Characters of the shortest token: a shorter one can be guessed."""

MOST_TOKEN_BYTES = 2**16

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


def read_tokens(path: Path | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The tokens of a file (one a line; lines that begin with `#` are comments) and of the environment variable.

    They are never taken from the command line, which every user of a machine can read.
    Raises `SwarmError` for a file that cannot be read or holds no token, and for a token that no header can carry.

    >>> read_tokens(None, {"LAYERWISE_SWARM_TOKENS": "0123456789abcdef, another-long-token"})
    ('0123456789abcdef', 'another-long-token')
    """
    tokens = re.split(r"[\s,]+", environment.get(VARIABLE, ""))
    if path is not None:
        try:
            lines = read_bytes(path, MOST_TOKEN_BYTES).decode("utf-8").splitlines()
        except (UnreadableError, UnicodeDecodeError) as error:
            raise SwarmError(f"the file of tokens {path} {error}; write one token a line") from error
        of_file = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not of_file:
            raise SwarmError(f"the file of tokens {path} holds no token; write one a line")
        tokens += of_file
    kept = tuple(dict.fromkeys(token for token in tokens if token))
    for token in kept:
        if len(token) < LEAST_CHARACTERS or not _TOKEN.fullmatch(token):
            raise SwarmError(
                f"a token of {len(token)} characters is too short or has a character that no header carries; write at "
                f"least {LEAST_CHARACTERS} of A-Z a-z 0-9 . _ ~ + / = -, as `openssl rand -hex 24` does"
            )
    return kept


def check_exposure(host: str, tokens: Sequence[str]) -> None:
    if not tokens and not is_loopback(host):
        raise SwarmError(
            f"other machines can reach host {host!r}, and no token for access is set: give a file with one token a "
            f"line (--token-file FILE), set {VARIABLE}, or listen on 127.0.0.1"
        )


def is_allowed(authorization: str, tokens: Sequence[str]) -> bool:
    """Whether a header `Authorization: Bearer TOKEN` carries one of the tokens; takes the same time for any wrong one.

    >>> is_allowed("Bearer 0123456789abcdef", ["0123456789abcdef"]), is_allowed("Bearer 0", ["0123456789abcdef"])
    (True, False)
    """
    scheme, _, shown = authorization.partition(" ")
    given = sha256(shown.strip().encode("utf-8", "surrogateescape")).digest()
    equal = [hmac.compare_digest(given, sha256(token.encode()).digest()) for token in tokens]
    return scheme.lower() == "bearer" and any(equal)


def names_this_machine(host_header: str) -> bool:
    """Whether a `Host` header names loopback, as a request from this machine does.

    A page of the web can make a browser send requests to a name that it has resolved to 127.0.0.1; that name is in the
    header. A server without tokens answers no such request.

    >>> names_this_machine("127.0.0.1:8000"), names_this_machine("[::1]:8000"), names_this_machine("rebound.example")
    (True, True, False)
    """
    host = host_header.rsplit(":", 1)[0] if re.search(r":\d+$", host_header) else host_header
    return is_loopback(host)
