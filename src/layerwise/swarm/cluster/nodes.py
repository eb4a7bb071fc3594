"""Nodes as Ray actors, on different machines if the cluster has several.

Ray delivers each message at most once (`max_task_retries=0`); the router repeats lost calls. Ray takes 15 to 55 s to
detect a failure, so the router uses deadlines. Restarted nodes (`max_restarts=-1`) hold no layers.
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
from layerwise.swarm.cluster.connection import LOCAL, Connection, format_cause, use_environment
from layerwise.swarm.messages import Gone, Message, Refused, Response, pack, unpack
from layerwise.swarm.nodes.node import Node

START_SECONDS = 300.0


class NodeActor:
    def __init__(self, name: str, folder: str, paths: tuple[str, ...], device: str) -> None:
        use_environment(folder, paths)
        torch.set_num_threads(1)
        where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        self._node = Node(name, where)

    def handle(self, packed: bytes) -> bytes:
        return pack(self._node.handle_all(unpack(packed)))

    def process(self) -> tuple[str, int]:
        return socket.gethostname(), os.getpid()


class RayTransport:
    """Delivers messages to nodes on a Ray cluster (`local`, `auto` or `HOST:PORT`), with one actor per name.

    Raises:
        SwarmError: If no cluster answers, or if it has too few CPUs for the nodes.
    """

    def __init__(self, names: Sequence[str], address: str = LOCAL, *, device: str = "auto") -> None:
        self._connection = Connection(address, len(names))
        self._ray = self._connection.ray
        self._device = device
        self._actors: dict[str, Any] = {}
        self._dead: set[str] = set()
        self._group: Any = None
        try:
            self._group = self._reserve_nodes(len(names))
            for number, name in enumerate(names):
                self._actors[name] = self._start_node(name, number)
            refs = [actor.process.remote() for actor in self._actors.values()]
            self.processes = dict(zip(names, self._ray.get(refs, timeout=START_SECONDS), strict=True))
        except self._ray.exceptions.RayError as error:
            self._stop_nodes()
            raise SwarmError(f"The nodes did not start within {START_SECONDS:.0f} s: {error}") from error
        except BaseException:
            self._stop_nodes()
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
            return Gone(node, format_cause(error))
        except errors.RayActorError as error:
            self._dead.add(node)
            return Gone(node, format_cause(error))
        except errors.RayTaskError as error:
            return Refused(node, format_cause(error))
        except errors.RayError as error:
            return Gone(node, format_cause(error))
        self._dead.discard(node)
        return responses

    async def close(self) -> None:
        self._stop_nodes()

    def _reserve_nodes(self, count: int) -> Any:
        from ray.util.placement_group import placement_group

        machines = sum(bool(each.get("Alive")) for each in self._ray.nodes())
        strategy = "STRICT_SPREAD" if machines >= count > 1 else "SPREAD"
        group = placement_group([{"CPU": 1}] * count, strategy=strategy)
        if not group.wait(START_SECONDS):
            raise SwarmError(
                f"The cluster did not provide {count} CPUs, one per node, within {START_SECONDS:.0f} s; it has "
                f"{self._ray.cluster_resources().get('CPU', 0):.0f}. Pass fewer --nodes or add machines."
            )
        return group

    def _start_node(self, name: str, bundle: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        options = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": 0, "scheduling_strategy": strategy}
        kind = self._ray.remote(NodeActor)
        return kind.options(**options).remote(name, str(Path.cwd()), tuple(sys.path), self._device)

    def _stop_nodes(self) -> None:
        from ray.util.placement_group import remove_placement_group

        try:
            for actor in self._actors.values():
                self._ray.kill(actor, no_restart=True)
            if self._group is not None:
                remove_placement_group(self._group)
        except Exception:  # the cluster itself may have failed
            pass
        self._connection.close()
