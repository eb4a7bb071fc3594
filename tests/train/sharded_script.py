"""Sharded (`fully_shard`) losses, gradients and LAMB steps compared with those of a full copy, on two processes."""

import copy
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from layerwise.plan.samplers import Drop, SeededSampler, Shuffle
from layerwise.stack import Stack, load
from layerwise.train.pretrain.lamb import Lamb
from train.tiny_models import tiny_digits, tiny_vit

DEPTH = 4
SAMPLERS = {"shuffle": Shuffle(), "drop": Drop(0.5, of=Shuffle())}
PASSES = 4


def compare_training(sampler: str) -> None:
    rank = distributed.get_rank()
    splits = tiny_digits()
    whole, sharded = load(tiny_vit(DEPTH)), load(tiny_vit(DEPTH))
    mesh = init_device_mesh("cpu", (2,))
    for block in sharded.model.vit.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(sharded.model, mesh=mesh)
    draws = SeededSampler(SAMPLERS[sampler], DEPTH, 0)
    optimizers = [torch.optim.SGD(stack.model.parameters(), lr=0.1) for stack in (whole, sharded)]
    for step in range(PASSES):
        batch = splits.collate([splits.train[number] for number in range(4 * step, 4 * step + 4)])
        mine = {name: tensor[2 * rank : 2 * rank + 2] for name, tensor in batch.items()}
        expected = _pass(whole, draws.at(step), batch)
        found = _pass(sharded, draws.at(step), mine)
        distributed.all_reduce(found)
        torch.testing.assert_close(found / 2, expected, rtol=1e-4, atol=1e-6)
        _compare(whole.model, sharded.model, str(draws.at(step)))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def _pass(stack: Stack, plan: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    with stack.under(plan, single_pass=True):
        loss = stack.model(**batch).loss
        loss.backward()
    return loss.detach().clone()


def _compare(whole: Any, sharded: Any, plan: str) -> None:
    others = dict(sharded.named_parameters())
    for name, weight in whole.named_parameters():
        other = others[name].grad
        if weight.grad is None:
            assert other is None, f"{name} under {plan}"
        else:
            label = f"{name} under {plan}"
            torch.testing.assert_close(other.full_tensor(), weight.grad, rtol=1e-3, atol=1e-6, msg=label)


def optimizer(model: nn.Module) -> Lamb:
    return Lamb(model.named_parameters(), learning_rate=0.1, betas=(0.9, 0.98), epsilon=1e-6, weight_decay=0.4)


def stepped(model: Any, own: Lamb, step: int) -> None:
    inputs = torch.randn(6, 7, generator=torch.Generator().manual_seed(step))
    model(inputs).pow(2).sum().backward()
    own.step()
    own.zero_grad()


def compare_lamb() -> None:
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(7, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    sharded: Any = copy.deepcopy(whole)
    fully_shard(sharded, mesh=init_device_mesh("cpu", (2,)))
    of_whole, of_shards = optimizer(whole), optimizer(sharded)
    for step in range(PASSES):
        stepped(whole, of_whole, step)
        stepped(sharded, of_shards, step)
    restored = optimizer(sharded)
    set_optimizer_state_dict(sharded, restored, get_optimizer_state_dict(sharded, of_shards))
    for step in range(PASSES, 2 * PASSES):
        stepped(whole, of_whole, step)
        stepped(sharded, restored, step)
    shards: dict[str, Any] = dict(sharded.named_parameters())
    for name, weight in whole.named_parameters():
        torch.testing.assert_close(shards[name].full_tensor(), weight.detach(), rtol=1e-4, atol=1e-6, msg=name)


PARTS: dict[str, Callable[[], None]] = {
    **{name: partial(compare_training, name) for name in SAMPLERS},
    "lamb": compare_lamb,
}


def compare_all() -> None:
    warnings.simplefilter("ignore")
    distributed.init_process_group("gloo")
    for name, part in PARTS.items():
        print(f"part: {name}", file=sys.stderr, flush=True)
        part()
    distributed.destroy_process_group()
