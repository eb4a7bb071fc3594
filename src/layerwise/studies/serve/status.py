"""`layerwise serve status`: show the nodes of a running swarm."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from layerwise.errors import SwarmError
from layerwise.runner.arguments import Metavar, PathLike, Range, Rare
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.verb import verb
from layerwise.swarm.serve.settings import read_tokens

TIMEOUT = 10.0
"""Timeout of a request in seconds."""


@dataclass(frozen=True, slots=True)
class SwarmStatus:
    """The overview of a swarm; `exit_code` is 1 if the swarm is not ready to answer."""

    overview: dict[str, Any]
    exit_code: int


@verb("serve status", group="Serving", examples=("", "http://127.0.0.1:8080 --token-file tokens.txt"))
def serve_status(
    url: Annotated[str, Metavar("URL")] = "http://127.0.0.1:8000",
    *,
    token_file: PathLike = None,
    events: Rare[Annotated[int, Range(least=0)]] = 10,
    reporter: Reporter | None = None,
) -> SwarmStatus:
    """Show the nodes of a running swarm, the layers that are live, and the latest events.

    The exit code is 1 if the swarm is not ready.

    Args:
        url: Address of the server.
        token_file: File with API keys, one per line; or set LAYERWISE_SWARM_TOKENS.
        events: Number of events to show.
        reporter: Where the table goes (default: the terminal or the notebook).

    Returns:
        The overview from the server.

    Raises:
        SwarmError: If no server answers, or if the server returns an error.
    """
    reporter = reporter or Silent()
    tokens = read_tokens(Path(token_file) if token_file else None, os.environ)
    address = url.rstrip("/")
    overview = fetch_json(f"{address}/swarm/overview", tokens)
    reporter.result(format_overview(overview, events))
    return SwarmStatus(overview, exit_code=int(not is_ready(f"{address}/health", tokens)))


def is_ready(address: str, tokens: tuple[str, ...]) -> bool:
    try:
        fetch_json(address, tokens)
    except SwarmError:
        return False
    return True


def fetch_json(address: str, tokens: tuple[str, ...]) -> dict[str, Any]:
    if not address.startswith(("http://", "https://")):
        raise SwarmError(f"the address of a server must be http://HOST:PORT, got {address[:80]!r}.")
    request = urllib.request.Request(address)
    if tokens:
        request.add_header("Authorization", f"Bearer {tokens[0]}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            content: dict[str, Any] = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise SwarmError(
            f"{address} returned status {error.code}. If it is 401, pass an API key of the server with --token-file."
        ) from error
    except (OSError, ValueError) as error:
        raise SwarmError(f"no server answers at {address} ({error}). Start one with layerwise serve.") from error
    return content


def format_overview(overview: dict[str, Any], events: int) -> str:
    nodes = overview["nodes"]
    lines = [
        f"{overview['model']}: {len(overview['live_layers'])} of {overview['depth']} layers live, quorum "
        f"{overview['quorum']}",
        f"{overview['completed']} requests completed, {overview['degraded']} of them with missing layers; "
        f"{overview['refused']} rejected, {len(overview['running'])} running, {overview['queued']} waiting",
        "",
    ]
    rows = [("node", "state", "layers", "calls", "failed", "median", "p99", "")]
    rows += [
        (
            node["name"],
            node["state"],
            " ".join(node["layers"]),
            str(node["calls"]),
            str(node["failures"]),
            _milliseconds(node["median"]),
            _milliseconds(node["p99"]),
            node["reason"],
        )
        for node in nodes
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines += ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    shown = overview["events"][-events:] if events else []
    lines += ["", *(f"{event['seconds']:9.1f} s  {event['kind']:11}  {event['text']}" for event in shown)]
    return "\n".join(lines).rstrip()


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.1f} ms"
