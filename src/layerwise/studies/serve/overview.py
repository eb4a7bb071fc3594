"""What a running swarm says of itself, for `layerwise serve status`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from layerwise.errors import SwarmError

PATIENCE = 10.0
"""Seconds to wait for an answer."""


def is_ready(address: str, tokens: tuple[str, ...]) -> bool:
    try:
        fetched(address, tokens)
    except SwarmError:
        return False
    return True


def fetched(address: str, tokens: tuple[str, ...]) -> dict[str, Any]:
    """The JSON at an address. Raises `SwarmError` where no server answers, or refuses."""
    if not address.startswith(("http://", "https://")):
        raise SwarmError(f"{address[:80]!r} is no address of a server; write http://HOST:PORT")
    request = urllib.request.Request(address)
    if tokens:
        request.add_header("Authorization", f"Bearer {tokens[0]}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            content: dict[str, Any] = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise SwarmError(f"{address} answers {error.code}; give the token of the server (--token-file)") from error
    except (OSError, ValueError) as error:
        raise SwarmError(f"no swarm answers at {address} ({error}); start one with layerwise serve") from error
    return content


def table(overview: dict[str, Any], events: int) -> str:
    nodes = overview["nodes"]
    lines = [
        f"{overview['model']}: {len(overview['live_layers'])} of {overview['depth']} layers live, quorum "
        f"{overview['quorum']}",
        f"{overview['completed']} requests completed, {overview['degraded']} of them without all layers; "
        f"{overview['refused']} refused, {len(overview['running'])} under way, {overview['queued']} waiting",
        "",
    ]
    rows = [("node", "state", "layers", "hops", "failed", "median", "p99", "")]
    rows += [
        (
            node["name"],
            node["state"],
            " ".join(node["layers"]),
            str(node["hops"]),
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
