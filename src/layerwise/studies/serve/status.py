"""`layerwise serve status`: show the nodes of a running swarm."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from layerwise.runner.arguments import Metavar, PathLike, Range, Rare
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.verb import verb
from layerwise.studies.serve.overview import fetch_json, format_overview, is_ready
from layerwise.swarm.serve.settings import read_tokens


@dataclass(frozen=True, slots=True)
class SwarmStatus:
    """The overview of a swarm; `exit_code` is 1 if it cannot answer."""

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
        SwarmError: If no server answers, or if it returns an error.
    """
    reporter = reporter or Silent()
    tokens = read_tokens(Path(token_file) if token_file else None, os.environ)
    address = url.rstrip("/")
    overview = fetch_json(f"{address}/swarm/overview", tokens)
    reporter.result(format_overview(overview, events))
    return SwarmStatus(overview, exit_code=int(not is_ready(f"{address}/health", tokens)))
