"""The settings of the edge: where it listens, who may use it, and how much of everything it takes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from layerwise.errors import SwarmError


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
    `most_connections`      connections of any kind
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
        """Raise `SwarmError` for a value that no server can have."""
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
