"""One of two processes that hold a model in shards: LAMB moves the shards as it moves the whole, also once restored."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from layerwise.train.pretrain.lamb import Lamb, lamb

STEPS = 4


def optimiser(model: nn.Module) -> Lamb:
    return lamb(model.named_parameters(), learning_rate=0.1, betas=(0.9, 0.98), epsilon=1e-6, weight_decay=0.4)


def stepped(model: Any, own: Lamb, step: int) -> None:
    """One step on the inputs of that number, the same in every process."""
    inputs = torch.randn(6, 7, generator=torch.Generator().manual_seed(step))
    model(inputs).pow(2).sum().backward()
    own.step()
    own.zero_grad()


def compare_lamb() -> None:
    """Some steps of either, then some more of the shards with an optimiser that was restored."""
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(7, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    sharded: Any = copy.deepcopy(whole)
    fully_shard(sharded, mesh=init_device_mesh("cpu", (2,)))
    of_whole, of_shards = optimiser(whole), optimiser(sharded)
    for step in range(STEPS):
        stepped(whole, of_whole, step)
        stepped(sharded, of_shards, step)
    restored = optimiser(sharded)
    set_optimizer_state_dict(sharded, restored, get_optimizer_state_dict(sharded, of_shards))
    for step in range(STEPS, 2 * STEPS):
        stepped(whole, of_whole, step)
        stepped(sharded, restored, step)
    shards: dict[str, Any] = dict(sharded.named_parameters())
    for name, weight in whole.named_parameters():
        torch.testing.assert_close(shards[name].full_tensor(), weight.detach(), rtol=1e-4, atol=1e-6, msg=name)
