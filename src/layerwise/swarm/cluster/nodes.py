"""Nodes on Ray: one actor each, on different machines where the cluster has several.

An actor is called at most once for each message (`max_task_retries=0`); the router repairs lost calls. Ray's own
failure detection takes 15 to 55 s, so deadlines are used. Restarted nodes (`max_restarts=-1`) hold no layers.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from layerwise.errors import SwarmError
from layerwise.swarm.cluster.connection import LOCAL, Connection, cause_of, work_in
from layerwise.swarm.messages import Gone, Message, Refused, Response, pack, unpack
from layerwise.swarm.nodes.node import Node

STARTED_WITHIN = 300.0
"""Seconds in which the nodes of a cluster have to start."""


class NodeActor:
    """A `Node` in a process of its own. Ray calls one method at a time."""

    def __init__(self, name: str, folder: str, paths: tuple[str, ...], device: str) -> None:
        """Import from `paths` too, as the process of the router does; `folder` is where it works."""
        work_in(folder, paths)
        torch.set_num_threads(1)
        where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        self._node = Node(name, where)

    def handle(self, packed: bytes) -> bytes:
        return pack(self._node.handle_all(unpack(packed)))

    def process(self) -> tuple[str, int]:
        return socket.gethostname(), os.getpid()


class RayTransport:
    """Messages to nodes on a Ray cluster (`local`, `auto` or `HOST:PORT`), one actor per name.

    Raises `SwarmError` if no cluster answers or it has no room for the nodes.
    """

    def __init__(self, names: Sequence[str], address: str = LOCAL, *, device: str = "auto") -> None:
        self._connection = Connection(address, len(names))
        self._ray = self._connection.ray
        self._device = device
        self._actors: dict[str, Any] = {}
        self._dead: set[str] = set()
        self._group: Any = None
        try:
            self._group = self._placed(len(names))
            for number, name in enumerate(names):
                self._actors[name] = self._started(name, number)
            refs = [actor.process.remote() for actor in self._actors.values()]
            self.processes = dict(zip(names, self._ray.get(refs, timeout=STARTED_WITHIN), strict=True))
        except self._ray.exceptions.RayError as error:
            self._stop()
            raise SwarmError(f"the nodes did not start within {STARTED_WITHIN:.0f} s: {error}") from error
        except BaseException:
            self._stop()
            raise

    @property
    def is_over(self) -> bool:
        return self._dead >= self._actors.keys()

    async def call(self, node: str, messages: Sequence[Message]) -> Sequence[Response]:
        answers = await self._answers(node, self._actors[node].handle.remote(pack(messages)))
        return [answers] * len(messages) if isinstance(answers, Gone | Refused) else answers

    async def _answers(self, node: str, reference: Any) -> Sequence[Response] | Gone | Refused:
        errors = self._ray.exceptions
        try:
            responses: Sequence[Response] = unpack(await reference)
        except errors.ActorUnavailableError as error:  # Ray starts it again
            return Gone(node, cause_of(error))
        except errors.RayActorError as error:
            self._dead.add(node)
            return Gone(node, cause_of(error))
        except errors.RayTaskError as error:
            return Refused(node, cause_of(error))
        except errors.RayError as error:
            return Gone(node, cause_of(error))
        self._dead.discard(node)
        return responses

    async def close(self) -> None:
        self._stop()

    def _placed(self, count: int) -> Any:
        from ray.util.placement_group import placement_group

        machines = sum(bool(each.get("Alive")) for each in self._ray.nodes())
        strategy = "STRICT_SPREAD" if machines >= count > 1 else "SPREAD"
        group = placement_group([{"CPU": 1}] * count, strategy=strategy)
        if not group.wait(STARTED_WITHIN):
            raise SwarmError(
                f"the cluster has no room for {count} nodes of one processor each within {STARTED_WITHIN:.0f} s; ask "
                f"for fewer (--nodes), or add machines. It has {self._ray.cluster_resources().get('CPU', 0):.0f}"
            )
        return group

    def _started(self, name: str, bundle: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        options = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": 0, "scheduling_strategy": strategy}
        kind = self._ray.remote(NodeActor)
        return kind.options(**options).remote(name, str(Path.cwd()), tuple(sys.path), self._device)

    def _stop(self) -> None:
        from ray.util.placement_group import remove_placement_group

        try:
            for actor in self._actors.values():
                self._ray.kill(actor, no_restart=True)
            if self._group is not None:
                remove_placement_group(self._group)
        except Exception:  # the cluster itself may be gone
            pass
        self._connection.close()
