"""`layerwise serve`: serve a model across several nodes, with an OpenAI-compatible API."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from layerwise.errors import OptionError, SwarmError
from layerwise.runner.arguments import (
    Count,
    Device,
    Dtype,
    Location,
    Metavar,
    Names,
    OnePlan,
    PathLike,
    Range,
    Rare,
    Trait,
)
from layerwise.runner.plan_choice import parse_plan
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.verb import current_command, spell, verb
from layerwise.swarm.serve.settings import ServeSettings, read_tokens
from layerwise.swarm.settings import Quorum, SwarmSettings

if TYPE_CHECKING:
    from layerwise.swarm.swarm import Swarm

REPLICAS = 2
"""Default number of nodes that hold each layer (at most all nodes)."""

Nodes = Annotated[int, Range(least=1, most=10_000)]
Seconds = Annotated[float, Metavar("SECONDS")]


@dataclass(frozen=True, slots=True)
class Served:
    """Result of `serve`; `exit_code` is 1 if requests were interrupted when the server stopped."""

    exit_code: int


@verb(
    "serve",
    group="Serving",
    examples=("demo", "./my-model --nodes 8 --ray auto --sweep runs/my-model", "demo --in-process --port 8080"),
)
def serve(
    model: Annotated[str, Trait.LOCATION, Metavar("MODEL")],
    plan: OnePlan = None,
    *,
    nodes: Nodes = 4,
    replicas: Nodes = REPLICAS,
    ray: Annotated[str | None, Metavar("ADDRESS")] = None,
    in_process: bool = False,
    sweep: Annotated[PathLike, Metavar("RUN")] = None,
    quorum: Rare[Annotated[str | None, Metavar("QUORUM")]] = None,
    on_loss: Rare[Literal["keep", "recompute"]] = "keep",
    replacement: Rare[Annotated[Names, Trait.REPEATED, Metavar("MODEL")]] = (),
    deadline: Rare[Annotated[Seconds, Range(least=0.001)]] = 0.5,
    spot_share: Rare[Annotated[float, Range(least=0, most=1), Metavar("SHARE")]] = 0.01,
    host: Annotated[str, Metavar("HOST")] = "127.0.0.1",
    port: Annotated[int, Range(least=0, most=65535), Metavar("PORT")] = 8000,
    token_file: PathLike = None,
    temperature: Rare[Annotated[float, Range(least=0, most=2)]] = 1.0,
    most_running: Rare[Count] = 64,
    request_seconds: Rare[Annotated[Seconds, Range(least=0.1)]] = 600.0,
    device: Rare[Device] = "auto",
    dtype: Rare[Dtype] = "auto",
    tokenizer: Rare[Location] = None,
    layers: Rare[str | None] = None,
    revision: Rare[str | None] = None,
    trust_remote_code: Rare[bool] = False,
    resident_layers: Rare[Annotated[int | None, Range(least=1)]] = None,
    reporter: Reporter | None = None,
) -> Served:
    """Serve a model across several nodes and keep answering when some of them fail.

    Nodes are processes of a Ray cluster; without --ray, a cluster is started on this machine. If a node fails, a
    replica takes over and recomputes the tokens so far. If there is no replica, the model continues without the missing
    layers, and each response says so. Ctrl-C stops the server and all nodes.

    Args:
        model: Hub id, folder, GGUF file, or demo.
        plan: Plan to run (default: the original model).
        nodes: Number of nodes that hold layers.
        replicas: Number of nodes that hold each layer.
        ray: Address of a Ray cluster: local (on this machine), auto, or HOST:PORT; needs layerwise[ray].
        in_process: Keep the nodes in this process, without Ray.
        sweep: Run directory of a sweep of this model, which gives the cost of missing layers.
        quorum: When to stop answering: below a number of layers, or above a cost of "0.5 nats" (default: half).
        on_loss: After losing a layer, keep its cache entries or recompute all tokens without it.
        replacement: Model of the same base whose layers replace lost ones; repeat for more.
        deadline: Lower bound of the time limit of a call, in seconds.
        spot_share: Share of the requests that a second node checks; 0 trusts every node.
        host: Address to listen on; any address except loopback requires a token.
        port: Port to listen on; 0 picks a free one.
        token_file: File with API keys, one per line; or set LAYERWISE_SWARM_TOKENS.
        temperature: Default sampling temperature.
        most_running: Maximum number of concurrent requests.
        request_seconds: Time limit of a request in seconds.
        device: Device: auto, cpu, cuda, mps or xpu.
        dtype: Weight dtype. `auto` uses the checkpoint's dtype (float32 on CPU).
        tokenizer: Tokenizer, if the model does not include one.
        layers: Path of the layers, such as model.layers.
        revision: Branch, tag or commit of a hub model.
        trust_remote_code: Run code that comes with the model.
        resident_layers: Maximum number of layers in memory; the others are read from disk when needed.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The exit code, after SIGINT or SIGTERM stopped the server.

    Raises:
        SwarmError: If there are more replicas than nodes, or if the swarm cannot start.
    """
    if ray is not None and in_process:
        raise OptionError(f"{spell('ray')} and {spell('in_process')} cannot be combined. Pass one of them.")
    if replicas > nodes and replicas != REPLICAS:
        raise SwarmError(
            f"{spell('replicas')} must be at most {spell('nodes')} ({nodes}), because each replica of a layer is on a "
            f"different node, got {replicas}. Pass fewer replicas, or more nodes."
        )
    text = None if plan is None else str(parse_plan(str(plan)))
    minimum = None if quorum is None else Quorum.parse(quorum)
    from layerwise.studies.serve import gather
    from layerwise.swarm.serve.router_loop import run_router
    from layerwise.swarm.serve.router_messages import CHANNEL
    from layerwise.swarm.serve.router_process import RouterProcess, RunningRouter
    from layerwise.swarm.serve.run import run

    reporter = reporter or Silent()
    serving = ServeSettings(
        host,
        port,
        read_tokens(Path(token_file) if token_file else None, os.environ),
        temperature,
        max_running=most_running,
        request_seconds=request_seconds,
    )
    settings = SwarmSettings(
        on_loss=on_loss,
        quorum=minimum,
        replacements=tuple(f"r{number}" for number in range(len(replacement))),
        min_deadline=deadline,
        spot_share=spot_share,
    )
    open_model = partial(
        gather.open_served,
        model,
        replacement,
        reporter,
        device=device,
        dtype=dtype,
        tokenizer=tokenizer,
        layers=layers,
        revision=revision,
        trust_remote_code=trust_remote_code,
        resident_layers=resident_layers,
    )
    open_tokenizer = partial(gather.open_tokenizer, model, tokenizer, revision, trust_remote_code)
    where = None if in_process else ray or "local"
    command = [sys.executable, "-m", *shlex.split(current_command())]

    async def gather_nodes() -> Swarm:
        stack = await asyncio.to_thread(open_model)
        return await gather.gather_nodes(
            stack, reporter, plan=text, nodes=nodes, replicas=replicas, where=where, settings=settings, sweep=sweep
        )

    async def start_router() -> RouterProcess:
        router = RouterProcess(partial(RunningRouter.start, command), open_tokenizer, serving.close_seconds)
        await router.start()
        return router

    def announce(address: str) -> None:
        reporter.result(f"serving {model} at {address}/v1 (page: {address}); press Ctrl-C to stop")

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if CHANNEL in os.environ:
        return Served(run_router(gather_nodes, int(os.environ.pop(CHANNEL))))
    return Served(run(gather_nodes if in_process else start_router, serving, announce))
