"""Load the model to serve, and start the nodes that hold its layers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from layerwise.data.model_location import location_of
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.runner.opening import open_stack
from layerwise.runner.reporter import Reporter
from layerwise.stack import Stack, load
from layerwise.swarm.cluster.tasks import count_cpus
from layerwise.swarm.estimate import read_loss_estimate
from layerwise.swarm.gathering import gather
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.swarm import Swarm

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def open_served(model: str, replacements: Sequence[str], reporter: Reporter, **options: Any) -> Stack:
    """Load a model, and the models whose layers replace missing ones."""
    stack = open_stack(model, reporter, **options)
    if not replacements:
        return stack
    others = {
        f"r{number}": load(name, device=stack.device, dtype=stack.dtype) for number, name in enumerate(replacements)
    }
    return Stack.with_sources({"model": stack, **others})


def open_tokenizer(
    model: str, tokenizer: str | None, revision: str | None, trust_remote_code: bool
) -> PreTrainedTokenizerBase:
    if tokenizer is not None:
        return load_tokenizer(tokenizer, trust_remote_code=trust_remote_code)
    return load_tokenizer(location_of(model), revision, trust_remote_code)


async def gather_nodes(
    stack: Stack,
    reporter: Reporter,
    *,
    plan: str | None,
    nodes: int,
    replicas: int,
    where: str | None,
    settings: SwarmSettings,
    sweep: str | Path | None,
) -> Swarm:
    """Start the nodes on Ray at the address `where`, or in this process if it is None."""
    estimate = None if sweep is None else read_loss_estimate(Path(sweep))
    if where == "local":  # leave one thread per node on this machine
        torch.set_num_threads(max(1, count_cpus() - nodes))
    reporter.log(f"starting {nodes} nodes {'in this process' if where is None else f'on Ray ({where})'}")
    swarm = await asyncio.to_thread(
        gather, stack, nodes, replicas, address=where, plan=plan, settings=settings, estimate=estimate
    )
    layers = [f"{member.name}: {', '.join(layer.name for layer in sorted(member.layers))}" for member in swarm.members]
    reporter.log("layers: " + "; ".join(layers))
    return swarm
