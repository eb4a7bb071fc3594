"""Half of the layers of a swarm are lost, and those of another model of the same base stand in: what accuracy is left.

    layerwise train robust layershuffle --model demo-vit --seeds 2 --run RUN
    python benchmarks/swarm_replacement.py RUN

For every arm of RUN with two models: model a on six nodes, three of which, with half of the layers, die before the
first request; beside each layer of a lies that of b, on the nodes that are left. Half of the layers are drawn anew in
every draw. The bar is 95 % of the mean accuracy of a and b.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from layerwise.experiments.options.common import DataOptions
from layerwise.experiments.reporter import Silent
from layerwise.experiments.training_runs import finished_models, read_splits
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.measure.stats.seeds import over_seeds
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.swarm.gathering import order_of
from layerwise.swarm.messages import RemoteLayer
from layerwise.swarm.nodes.local import Fault, LocalTransport, Schedule, VirtualLoop
from layerwise.swarm.nodes.node import local_node
from layerwise.swarm.rehearsal import run_all
from layerwise.swarm.replication import Capacity
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.supply import Supply
from layerwise.swarm.swarm import Swarm
from layerwise.train.load_trained import open_trained

DRAWS = 6
BATCH = 90


def main(run: str) -> None:
    """Print, for every arm with two models, what is left with the lost layers replaced, and without them."""
    by_arm = defaultdict(list)
    for model in finished_models(Path(run)):
        by_arm[model.arm].append(model)
    for arm, models in by_arm.items():
        if len(models) < 2:
            continue
        stacks = [open_trained(model.folder).stack for model in models[:2]]
        stacks[0].source = type(stacks[0].source)("demo-vit", None)
        splits = read_splits(DataOptions(images="digits"), stacks[0], str(models[0].folder), Silent(), seed=0)
        whole = Plan.identity(stacks[0].depth)
        members = [evaluate(stack, whole, splits.test, splits.collate).accuracy for stack in stacks]
        both = Stack.with_sources({"a": stacks[0], "b": stacks[1]})
        order = order_of(models[0].folder)
        batches = [
            splits.collate([splits.test[number] for number in range(start, min(start + BATCH, len(splits.test)))])
            for start in range(0, len(splits.test), BATCH)
        ]
        for name, replacements in (("replaced", ("b",)), ("left out", ())):
            found = [accuracy(both, batches, replacements, order, draw) for draw in range(DRAWS)]
            low, high = over_seeds(found, "accuracy")
            share = float(np.mean(found)) / float(np.mean(members))
            print(
                f"{arm} ({order} order): members {members[0]:.3f}, {members[1]:.3f}; half of the layers {name}: "
                f"{np.mean(found):.3f} [{low:.3f}, {high:.3f}], {share:.1%} of the members' {np.mean(members):.3f}"
            )


def accuracy(both: Stack, batches: list, replacements: tuple[str, ...], order: str, draw: int) -> float:  # type: ignore[type-arg]
    """The share of images right when the nodes with half of the layers of `a`, drawn, are dead."""
    lost = set(random.Random(draw).sample(range(both.depth), both.depth // 2))
    held = {
        "kept": tuple(RemoteLayer(number) for number in range(both.depth) if number not in lost),
        "lost": tuple(RemoteLayer(number) for number in sorted(lost)),
        "other": tuple(RemoteLayer(number, "b") for number in range(both.depth)),
    }
    settings = SwarmSettings(order, replacements=replacements, spot_share=0.0)  # type: ignore[arg-type]
    nodes = {name: local_node(name, both, layers) for name, layers in held.items()}
    supply = Supply(both, Plan.identity(both.depth), [Capacity(name, 2**62) for name in held], 1, None)
    transport = LocalTransport(nodes, Schedule((Fault("lost", "die", 0.0),), seed=draw))
    inputs = [{"pixel_values": batch["pixel_values"]} for batch in batches]
    with Swarm(both, transport, supply, settings, loop_factory=VirtualLoop) as swarm:
        for name, layers in held.items():
            swarm.members.join(supply.capacities[name], layers)
        ended = run_all(swarm, inputs, streams=1)
    right = total = 0.0
    for batch, each in zip(batches, ended, strict=True):
        assert each.output is not None, each.refusal
        right += float((each.output.argmax(-1) == torch.as_tensor(batch["labels"])).sum())
        total += len(batch["labels"])
    return right / total


if __name__ == "__main__":
    main(sys.argv[1])
