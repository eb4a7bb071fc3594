"""`layerwise serve`: a model whose layers live on nodes, behind the API that clients of OpenAI's speak."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from layerwise.experiments.chosen_plan import given_plan
from layerwise.experiments.experiment import Action, Alternatives
from layerwise.experiments.option import option
from layerwise.experiments.options.model import ModelOptions
from layerwise.experiments.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from layerwise.stack import Stack
    from layerwise.swarm.placement.replication import Capacity
    from layerwise.swarm.settings import SwarmSettings
    from layerwise.swarm.swarm import Swarm


@dataclass(frozen=True, kw_only=True)
class Serving(ModelOptions, Action):
    """Serve a model whose layers live on nodes, some of which may die.

    Nodes are processes of a Ray cluster; without --ray one is started on this machine. A node that dies is replaced by
    a replica, which repeats what the dead one had done; where no replica is left the model goes on without the lost
    layers, and each answer says so. Ctrl-C ends the server and every node.
    """

    VERB: ClassVar = "serve"
    EXAMPLES: ClassVar = (
        "demo",
        "./my-model --nodes 8 --ray auto --sweep runs/my-model",
        "demo --in-process --port 8080",
    )
    ALTERNATIVES: ClassVar = (
        Alternatives(("ray", "in_process"), "say where the nodes are"),
        Alternatives(("nodes", "node_file"), "say which nodes there are"),
    )

    plan: str | None = option(None, "Plan that runs; by default the model as trained.", metavar="PLAN", empty=True)
    nodes: int = option(4, metavar="N", least=1, most=10_000)
    node_file: Path | None = option(
        None, "JSON list of the nodes: name, bytes, speed, watts, joules_per_hop, life_per_second.", metavar="PATH",
        setting=True,
    )  # fmt: skip
    replicas: int = option(2, metavar="N", least=1, most=10_000)
    ray: str | None = option(None, metavar="ADDRESS")
    in_process: bool = option(False, "Keep the nodes in this process, without Ray: to try it out.")
    sweep: Path | None = option(
        None, "Run of `layerwise sweep` on this model, which says what missing layers cost.", metavar="RUN"
    )
    quorum: str | None = option(
        None, "Least that answers: layers, as 8, or nats, as '0.5 nats'; by default half of the layers.",
        metavar="QUORUM", setting=True,
    )  # fmt: skip
    on_loss: Literal["keep", "recompute"] = option(
        "keep", "After a lost layer: keep what it left in the caches, or recompute all tokens without it.", setting=True
    )
    order: Literal["auto", "fixed", "any"] = option(
        "auto", "Order of the layers; auto is any for a model whose training record says so.", setting=True
    )
    replacement: tuple[str, ...] = option(
        (), "Model of the same base whose layers replace lost ones; repeat for more.", metavar="MODEL", repeated=True,
        setting=True,
    )  # fmt: skip
    deadline: float = option(0.5, "Seconds that every hop has at least.", metavar="SECONDS", least=0.001, setting=True)
    spot_share: float = option(
        0.01, "Share of the hops that a second node computes too; 0 trusts every node.", metavar="SHARE", least=0,
        most=1, setting=True,
    )  # fmt: skip
    paths: int = option(
        1, "Routes on which each request of a one-pass model is computed, to return what most say.", metavar="K",
        least=1, setting=True,
    )  # fmt: skip
    price_latency: float = option(1.0, "Price of a second of a route.", metavar="X", least=0, setting=True)
    price_nats: float = option(
        0.0, "Price of a nat per token that a route costs.", metavar="X", least=0, needs="sweep", setting=True
    )
    price_energy: float = option(
        0.0, "Price of a joule of a route.", metavar="X", least=0, needs="node_file", setting=True
    )
    price_life: float = option(
        0.0, "Price of the whole life of a device.", metavar="X", least=0, needs="node_file", setting=True
    )
    host: str = option("127.0.0.1", "Address to listen on; any but loopback needs a token.", metavar="HOST")
    port: int = option(8000, "Port to listen on; 0 is any free one.", metavar="PORT", least=0, most=65535)
    token_file: Path | None = option(None, metavar="PATH")
    temperature: float = option(
        1.0, "Temperature of a request that names none.", metavar="X", least=0, most=2, setting=True
    )
    most_running: int = option(64, "Requests that are answered at a time.", metavar="N", least=1, setting=True)
    most_queued: int = option(64, "Requests that wait; one more is refused.", metavar="N", least=0, setting=True)
    request_seconds: float = option(
        600.0, "Seconds in which a request is answered.", metavar="SECONDS", least=0.1, setting=True
    )
    drain_seconds: float = option(
        30.0, "Seconds that requests under way have left when the server is stopped.", metavar="SECONDS", least=0,
        setting=True,
    )  # fmt: skip

    def check(self) -> None:
        """Raise `PlanError` for a plan and `SwarmError` for a quorum that cannot be read."""
        from layerwise.swarm.routing.quorum import Quorum

        if self.plan is not None:
            given_plan(self.plan)
        if self.quorum is not None:
            Quorum.parse(self.quorum)

    def act(self, reporter: Reporter) -> int:
        """Serve until SIGINT or SIGTERM. Returns 0, or 1 where requests were cut off."""
        from layerwise.swarm.serve.access import read_tokens
        from layerwise.swarm.serve.run import run
        from layerwise.swarm.serve.settings import ServeSettings

        serving = ServeSettings(
            self.host, self.port, read_tokens(self.token_file, os.environ), self.temperature,
            most_running=self.most_running, most_queued=self.most_queued, request_seconds=self.request_seconds,
            drain_seconds=self.drain_seconds,
        )  # fmt: skip

        def announce(address: str) -> None:
            reporter.result(f"serving {self.model} at {address}/v1; the live page is {address}/swarm; Ctrl-C ends it")

        async def gather() -> Swarm:
            stack = await asyncio.to_thread(self.opened, reporter)
            return await self.gathered(stack, reporter)

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

        return run(gather, serving, announce)

    def opened(self, reporter: Reporter) -> Stack:
        """The model, with those that replace its layers within reach."""
        from layerwise.experiments.opening import open_named
        from layerwise.stack import Stack, load

        stack = open_named(self, reporter)
        if not self.replacement:
            return stack
        others = {f"r{number}": load(name) for number, name in enumerate(self.replacement)}
        return Stack.with_sources({"model": stack, **others})

    async def gathered(self, stack: Stack, reporter: Reporter) -> Swarm:
        """The swarm, once every node holds its layers."""
        from layerwise.swarm.cost.estimate import estimate_of_run
        from layerwise.swarm.gathering import gathered

        estimate = None if self.sweep is None else estimate_of_run(self.sweep)
        where = None if self.in_process else self.ray or "local"
        nodes = self._nodes()
        count = nodes if isinstance(nodes, int) else len(nodes)
        reporter.log(f"starting {count} nodes {'in this process' if where is None else f'on Ray ({where})'}")
        swarm = await gathered(
            stack, nodes, self.replicas, address=where, plan=self.plan, settings=self._settings(), estimate=estimate
        )
        held = [
            f"{member.name}: {', '.join(layer.name for layer in sorted(member.layers))}" for member in swarm.members
        ]
        reporter.log("layers: " + "; ".join(held))
        return swarm

    def _nodes(self) -> int | Sequence[Capacity]:
        from layerwise.swarm.placement.replication import read_capacities

        return self.nodes if self.node_file is None else read_capacities(self.node_file)

    def _settings(self) -> SwarmSettings:
        from layerwise.data.model_location import location_of
        from layerwise.swarm.gathering import order_of
        from layerwise.swarm.routing.quorum import Quorum
        from layerwise.swarm.routing.route import Prices
        from layerwise.swarm.settings import SwarmSettings

        return SwarmSettings(
            order=order_of(location_of(self.model)) if self.order == "auto" else self.order,
            on_loss=self.on_loss,
            quorum=None if self.quorum is None else Quorum.parse(self.quorum),
            prices=Prices(self.price_latency, self.price_nats, self.price_energy, self.price_life),
            replacements=tuple(f"r{number}" for number in range(len(self.replacement))),
            hop_floor=self.deadline,
            spot_share=self.spot_share,
            paths=self.paths,
            most_running=self.most_running,
            most_queued=self.most_queued,
        )
