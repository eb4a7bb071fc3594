"""Rehearsal: which models are put on how many nodes, how many of these die, and what the swarm is asked meanwhile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from layerwise.errors import OptionError
from layerwise.experiments.experiment import Experiment
from layerwise.experiments.option import option
from layerwise.experiments.options.common import DataOptions, ModelOptions
from layerwise.swarm.routing.quorum import Quorum


@dataclass(frozen=True, kw_only=True)
class Rehearsal(ModelOptions, DataOptions, Experiment):
    """Let the nodes of a swarm die while it answers: what is left of its quality, its latency and its requests.

    Nodes are objects of one process and time is virtual, so that a rehearsal takes seconds and can be repeated; with
    --ray they are processes, which are killed. Every model of a run of `layerwise train robust` meets the same losses,
    and they are compared. If interrupted, run the same command again to resume.
    """

    VERB: ClassVar = "robustness rehearse"
    RUNS: ClassVar = "rehearsal.run:rehearsal"
    EXAMPLES: ClassVar = (
        "demo --nodes 8 --replicas 2 --kill half",
        "runs/demo-vit-1a2b3c4d --kill 0-100%",
        "demo --ray local --kill half --draws 1",
    )

    model: str = option(
        help="Run of `layerwise train robust`, hub id, folder, or demo.", metavar="RUN_OR_MODEL", positional=True,
        is_location=True,
    )  # fmt: skip
    nodes: int = option(8, metavar="N", least=1, most=1_000)
    replicas: int = option(2, metavar="N", least=1, most=100)
    kill: str = option(
        "half", "Nodes that die: half, a number, or shares from one to another (0-100%).", metavar="WHAT"
    )
    requests: int = option(
        200, "Requests for every number of dead nodes, over all draws.", metavar="N", least=1, setting=True
    )
    draws: int = option(8, metavar="N", least=1, most=10_000)
    streams: int = option(8, "Requests at once.", metavar="N", least=1, most=1_000, setting=True)
    new_tokens: int = option(16, metavar="N", least=1, most=100_000, rare=True)
    on_loss: Literal["keep", "recompute"] = option(
        "keep", "What a request does whose layer has no replica left.", setting=True
    )
    quorum: str = option(
        "1", "Fewest layers, or most nats (0.5 nats), with which a request is answered.", metavar="N", setting=True
    )
    ray: str | None = option(
        None, metavar="ADDRESS", rare=True,
    )  # fmt: skip
    hop_seconds: float | None = option(
        None, "What a hop takes beside its layers; by default measured here.", metavar="X", least=0, setting=True
    )
    layer_seconds: float | None = option(
        None, "What a layer takes; by default measured here.", metavar="X", least=0, setting=True
    )

    def check(self) -> None:
        """Raise `OptionError` for numbers of nodes, and `SwarmError` for a quorum, that cannot be."""
        levels(self.kill, self.nodes)
        Quorum.parse(self.quorum)
        if self.replicas > self.nodes:
            raise OptionError(
                f"--replicas {self.replicas} needs as many nodes, and there are {self.nodes}: write --nodes "
                f"{self.replicas}, or --replicas {self.nodes}"
            )


def levels(kill: str, nodes: int) -> tuple[int, ...]:
    """The numbers of dead nodes: none, and those that `--kill` asks for.

    >>> levels("half", 8), levels("3", 8), levels("0-100%", 4), levels("50-75 %", 8)
    ((0, 4), (0, 3), (0, 1, 2, 3, 4), (0, 4, 5, 6))
    """
    shares = re.fullmatch(r"\s*(\d{1,3})\s*-\s*(\d{1,3})\s*%\s*", kill, re.ASCII)
    if kill.strip() == "half":
        counts: tuple[int, ...] = (nodes // 2,)
    elif shares is not None and int(shares[1]) <= int(shares[2]) <= 100:
        low, high = int(shares[1]), int(shares[2])
        counts = tuple(count for count in range(nodes + 1) if low * nodes <= 100 * count <= high * nodes)
    elif re.fullmatch(r"\s*\d{1,9}\s*", kill, re.ASCII) and int(kill) <= nodes:
        counts = (int(kill),)
    else:
        raise OptionError(
            f"--kill {kill[:40]!r} is no number of the {nodes} nodes: write half, {nodes // 2}, or 0-100%"
        )
    return tuple(sorted({0, *counts}))
