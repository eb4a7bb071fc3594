"""`layerwise serve status`: how a swarm that is being served does, as a table."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from layerwise.errors import SwarmError
from layerwise.experiments.experiment import Action
from layerwise.experiments.option import option
from layerwise.experiments.reporter import Reporter

PATIENCE = 10.0
"""Seconds that the server has to answer."""


@dataclass(frozen=True, kw_only=True)
class SwarmStatus(Action):
    """Show the nodes of a swarm that is being served, the layers that are live, and what has happened last.

    The exit code is 1 if the swarm is not ready: no token can be made at this moment.
    """

    VERB: ClassVar = "serve status"
    EXAMPLES: ClassVar = ("", "http://127.0.0.1:8080 --token-file tokens.txt")

    url: str = option("http://127.0.0.1:8000", "Address of the server.", metavar="URL", positional=True)
    token_file: Path | None = option(None, metavar="PATH")
    events: int = option(10, "Events to show.", metavar="N", least=0, setting=True)

    def act(self, reporter: Reporter) -> int:
        """Ask the server, and show what it says."""
        from layerwise.swarm.serve.access import read_tokens

        tokens = read_tokens(self.token_file, os.environ)
        overview = fetched(f"{self.url.rstrip('/')}/swarm/overview", tokens)
        reporter.result(table(overview, self.events))
        return 0 if is_ready(f"{self.url.rstrip('/')}/health", tokens) else 1


def is_ready(address: str, tokens: tuple[str, ...]) -> bool:
    """Whether the server says that a token can be made."""
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
    """An overview as text: the nodes, the layers that are live, and the last events."""
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
            node["name"], node["state"], " ".join(node["layers"]), str(node["hops"]), str(node["failures"]),
            _milliseconds(node["median"]), _milliseconds(node["p99"]), node["reason"],
        )
        for node in nodes
    ]  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines += ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    shown = overview["events"][-events:] if events else []
    lines += ["", *(f"{event['seconds']:9.1f} s  {event['kind']:11}  {event['text']}" for event in shown)]
    return "\n".join(lines).rstrip()


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.1f} ms"
