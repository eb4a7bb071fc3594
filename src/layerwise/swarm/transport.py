"""How messages reach nodes: one asynchronous method. The local double and Ray are its two implementations."""

from __future__ import annotations

from typing import Protocol

from layerwise.swarm.messages import Message, Response


class Transport(Protocol):
    """Carries messages to nodes, at most once each: it never sends a message again by itself.

    The way a call ends is a value: a node that has died is `Gone`, and nothing is raised. A call that takes too long
    is ended by the caller, which then speaks of `Late`.
    """

    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes that were ever started, in order, dead ones too."""
        ...

    async def call(self, node: str, message: Message) -> Response:
        """What the node answers to the message, or how the call failed."""
        ...

    async def close(self) -> None:
        """Stop every node that this transport started."""
        ...
