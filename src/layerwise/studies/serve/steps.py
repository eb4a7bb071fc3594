"""`layerwise serve`: a model across nodes, behind an OpenAI-compatible API, and `layerwise serve status`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from layerwise.errors import SwarmError
from layerwise.runner.experiment import Action, Alternatives
from layerwise.runner.option import option
from layerwise.runner.options.common import ModelOptions, ResidentOptions
from layerwise.runner.options.plans import given_plan
from layerwise.runner.reporter import Reporter
from layerwise.swarm.serve.settings import ServeSettings, read_tokens
from layerwise.swarm.settings import Quorum, SwarmSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from layerwise.stack import Stack
    from layerwise.swarm.swarm import Swarm


REPLICAS = 2
"""Nodes that hold each layer by default, or all nodes if there are fewer."""


@dataclass(frozen=True, kw_only=True)
class Serving(ResidentOptions, ModelOptions, Action):
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
    ALTERNATIVES: ClassVar = (Alternatives(("ray", "in_process"), "say where the nodes are"),)

    plan: str | None = option(None, "Plan that runs; by default the model as trained.", metavar="PLAN", empty=True)
    nodes: int = option(4, "Nodes that hold layers.", metavar="N", least=1, most=10_000)
    replicas: int = option(REPLICAS, "Nodes that hold each layer.", metavar="N", least=1, most=10_000)
    ray: str | None = option(None, metavar="ADDRESS")
    in_process: bool = option(False, "Keep the nodes in this process, without Ray: to try it out.")
    sweep: Path | None = option(
        None, "Run of `layerwise sweep` on this model, which says what missing layers cost.", metavar="RUN"
    )
    quorum: str | None = option(
        None,
        "Least that answers: layers, as 8, or nats, as '0.5 nats'; by default half of the layers.",
        metavar="QUORUM",
        setting=True,
    )
    on_loss: Literal["keep", "recompute"] = option(
        "keep", "After a lost layer: keep what it left in the caches, or recompute all tokens without it.", setting=True
    )
    replacement: tuple[str, ...] = option(
        (),
        "Model of the same base whose layers replace lost ones; repeat for more.",
        metavar="MODEL",
        repeated=True,
        setting=True,
    )
    deadline: float = option(0.5, "Seconds that every hop has at least.", metavar="SECONDS", least=0.001, setting=True)
    spot_share: float = option(
        0.01,
        "Share of the hops that a second node computes too; 0 trusts every node.",
        metavar="SHARE",
        least=0,
        most=1,
        setting=True,
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
        30.0,
        "Seconds that requests under way have left when the server is stopped.",
        metavar="SECONDS",
        least=0,
        setting=True,
    )

    def check(self) -> None:
        if self.replicas > self.nodes and self.replicas != REPLICAS:
            raise SwarmError(
                f"--replicas must be at most --nodes, got {self.replicas} replicas on {self.nodes} nodes. "
                "Each copy of a layer is on another node."
            )
        if self.plan is not None:
            given_plan(self.plan)
        if self.quorum is not None:
            Quorum.parse(self.quorum)

    def act(self, reporter: Reporter) -> int:
        """Serve until SIGINT or SIGTERM. Returns 0, or 1 where requests were cut off."""
        from layerwise.runner.spelling import as_command
        from layerwise.swarm.serve.router_loop import answer_server
        from layerwise.swarm.serve.router_messages import CHANNEL
        from layerwise.swarm.serve.router_process import RouterProcess, RunningRouter
        from layerwise.swarm.serve.run import run

        serving = ServeSettings(
            self.host,
            self.port,
            read_tokens(self.token_file, os.environ),
            self.temperature,
            most_running=self.most_running,
            most_queued=self.most_queued,
            request_seconds=self.request_seconds,
            drain_seconds=self.drain_seconds,
        )

        def announce(address: str) -> None:
            reporter.result(f"serving {self.model} at {address}/v1; the live page is {address}/swarm; Ctrl-C ends it")

        async def gather() -> Swarm:
            stack = await asyncio.to_thread(self.opened, reporter)
            return await self.gathered(stack, reporter)

        async def start() -> RouterProcess:
            command = [sys.executable, "-m", *shlex.split(as_command(self))]
            router = RouterProcess(
                partial(RunningRouter.started, command), self.opened_tokenizer, serving.close_seconds
            )
            await router.start()
            return router

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        if CHANNEL in os.environ:
            return answer_server(gather, int(os.environ.pop(CHANNEL)))
        return run(gather if self.in_process else start, serving, announce)

    def opened_tokenizer(self) -> PreTrainedTokenizerBase:
        from layerwise.data.model_location import location_of
        from layerwise.data.text.tokenizer import load_tokenizer

        if self.tokenizer is not None:
            return load_tokenizer(self.tokenizer, trust_remote_code=self.trust_remote_code)
        return load_tokenizer(location_of(self.model), self.revision, self.trust_remote_code)

    def opened(self, reporter: Reporter) -> Stack:
        from layerwise.runner.opening import open_named
        from layerwise.stack import Stack, load

        stack = open_named(self, reporter)
        if not self.replacement:
            return stack
        others = {
            f"r{number}": load(name, device=stack.device, dtype=stack.dtype)
            for number, name in enumerate(self.replacement)
        }
        return Stack.with_sources({"model": stack, **others})

    async def gathered(self, stack: Stack, reporter: Reporter) -> Swarm:
        import torch

        from layerwise.swarm.cluster.tasks import available_processors
        from layerwise.swarm.estimate import estimate_of_run
        from layerwise.swarm.gathering import gathered

        estimate = None if self.sweep is None else estimate_of_run(self.sweep)
        where = None if self.in_process else self.ray or "local"
        if where == "local":  # the nodes of one thread each compute on the same machine
            torch.set_num_threads(max(1, available_processors() - self.nodes))
        reporter.log(f"starting {self.nodes} nodes {'in this process' if where is None else f'on Ray ({where})'}")
        swarm = await gathered(
            stack,
            self.nodes,
            self.replicas,
            address=where,
            plan=self.plan,
            settings=SwarmSettings(
                on_loss=self.on_loss,
                quorum=None if self.quorum is None else Quorum.parse(self.quorum),
                replacements=tuple(f"r{number}" for number in range(len(self.replacement))),
                hop_floor=self.deadline,
                spot_share=self.spot_share,
            ),
            estimate=estimate,
        )
        held = [
            f"{member.name}: {', '.join(layer.name for layer in sorted(member.layers))}" for member in swarm.members
        ]
        reporter.log("layers: " + "; ".join(held))
        return swarm


PATIENCE = 10.0


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
        tokens = read_tokens(self.token_file, os.environ)
        overview = fetched(f"{self.url.rstrip('/')}/swarm/overview", tokens)
        reporter.result(table(overview, self.events))
        return 0 if is_ready(f"{self.url.rstrip('/')}/health", tokens) else 1


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
