"""Who may use the server: bearer tokens, and no door to other machines without one."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from layerwise.bounded import Unreadable, read_bytes
from layerwise.errors import SwarmError

VARIABLE = "LAYERWISE_SWARM_TOKENS"
"""The environment variable with tokens, separated by white space or commas."""

LEAST_CHARACTERS = 16
"""Characters of the shortest token: a shorter one can be guessed."""

MOST_TOKEN_BYTES = 2**16
"""Bytes of the largest file of tokens."""

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
        except (Unreadable, UnicodeDecodeError) as error:
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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "", "example.org")]
    [True, True, True, False, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, tokens: Sequence[str]) -> None:
    """Raise `SwarmError` where other machines could reach the server and nobody has to show a token."""
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
