"""Overview of a running swarm, for `layerwise serve status`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from layerwise.errors import SwarmError

TIMEOUT = 10.0
"""Timeout of a request in seconds."""


def is_ready(address: str, tokens: tuple[str, ...]) -> bool:
    try:
        fetch_json(address, tokens)
    except SwarmError:
        return False
    return True


def fetch_json(address: str, tokens: tuple[str, ...]) -> dict[str, Any]:
    """Return the JSON at an address.

    Raises:
        SwarmError: If no server answers, or if it returns an error.
    """
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
            f"{address} returned status {error.code}. Pass the server's token with --token-file."
        ) from error
    except (OSError, ValueError) as error:
        raise SwarmError(f"no swarm answers at {address} ({error}). Start one with layerwise serve.") from error
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
