"""What tests of the swarm share: prompts, decoding of whole batches, and swarms whose weights went through bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from contracts.specimen import EOS, PAD, VOCABULARY
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from layerwise.swarm.decoding.decode import decode
from layerwise.swarm.decoding.head import BatchedHead
from layerwise.swarm.gathering import gather
from layerwise.swarm.nodes.local import LocalTransport, Schedule, VirtualLoop
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.supply import Supply
from layerwise.swarm.swarm import Swarm

NEW_TOKENS = 6

_NUMBERS = count()


def prompts(count: int, length: int = 9, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Random prompts of up to `length` tokens, padded on the left, and their mask."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(EOS + 1, VOCABULARY, (count, length), generator=generator)
    lengths = torch.randint(3, length + 1, (count,), generator=generator)
    lengths[0] = length
    mask = (torch.arange(length) >= length - lengths[:, None]).long()
    return torch.where(mask.bool(), ids, PAD), mask


def options(mask: Tensor | None = None, new_tokens: int = NEW_TOKENS) -> dict[str, Any]:
    """Greedy decoding of so many tokens."""
    given = {} if mask is None else {"attention_mask": mask}
    return {
        "max_new_tokens": new_tokens,
        "min_new_tokens": new_tokens,
        "do_sample": False,
        "pad_token_id": PAD,
        **given,
    }


def generated(model: Any, ids: Tensor, mask: Tensor | None = None, new_tokens: int = NEW_TOKENS) -> Tensor:
    """The new tokens that `generate` writes, `(batch, new tokens)`."""
    with torch.inference_mode():
        return model.generate(ids, **options(mask, new_tokens))[:, ids.shape[1] :]


def decoded(
    swarm: Swarm, ids: Tensor, mask: Tensor | None = None, new_tokens: int = NEW_TOKENS
) -> tuple[Tensor, SwarmRequest]:
    """The new tokens that a swarm writes, and the request that wrote them."""
    session = SwarmRequest.of(f"request-{next(_NUMBERS)}", swarm.plan)

    async def tokens() -> list[Tensor]:
        steps = decode(swarm.router, session, BatchedHead(swarm.stack), ids, **options(mask, new_tokens))
        return [chosen async for chosen in steps]

    return torch.stack(swarm.run(tokens()), dim=1), session


def from_bytes(stack: Stack, nodes: int, replicas: int = 1, schedule: Schedule | None = None, **settings: Any) -> Swarm:
    """A swarm on the double whose nodes built their blocks from messages, as on other machines."""
    supply = Supply(stack, Plan.identity(stack.depth), [f"node-{number}" for number in range(nodes)], replicas)
    transport = LocalTransport({name: Node(name) for name in supply.placement}, schedule or Schedule())
    swarm = Swarm(stack, transport, supply, SwarmSettings(spot_share=0.0, **settings), loop_factory=VirtualLoop)
    swarm.run(swarm.fill())
    return swarm


def inspected(model: nn.Module, ids: Tensor) -> Stack:
    """A Stack over a model, ready to run on a swarm."""
    stack = load(model)
    stack.inspect(input_ids=ids)
    return stack


def events(swarm: Swarm, kinds: Sequence[str]) -> list[str]:
    """The texts of what has happened of these kinds."""
    return [event.text for event in swarm.members.events if event.kind in kinds]


__all__ = ["decoded", "events", "from_bytes", "gather", "generated", "inspected", "options", "prompts"]
