"""Shared helpers: prompts, batch decoding, and swarms whose weights went through bytes."""

from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from contracts import specimen
from contracts.specimen import EOS, PAD, VOCABULARY
from contracts.zoo import named
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from layerwise.swarm.decoding import BatchedHead, CachedDecoding, decode, prepare_generation
from layerwise.swarm.messages import Pass
from layerwise.swarm.nodes.local import LocalTransport, Schedule, VirtualLoop
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.supply import Supply
from layerwise.swarm.swarm import Swarm
from layerwise.swarm.wire import encode

NEW_TOKENS = 6

_NUMBERS = count()


def prompts(count: int, length: int = 9, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(EOS + 1, VOCABULARY, (count, length), generator=generator)
    lengths = torch.randint(3, length + 1, (count,), generator=generator)
    lengths[0] = length
    mask = (torch.arange(length) >= length - lengths[:, None]).long()
    return torch.where(mask.bool(), ids, PAD), mask


def options(mask: Tensor | None = None, new_tokens: int = NEW_TOKENS) -> dict[str, Any]:
    given = {} if mask is None else {"attention_mask": mask}
    return {
        "max_new_tokens": new_tokens,
        "min_new_tokens": new_tokens,
        "do_sample": False,
        "pad_token_id": PAD,
        **given,
    }


def generate_tokens(model: Any, ids: Tensor, mask: Tensor | None = None, new_tokens: int = NEW_TOKENS) -> Tensor:
    with torch.inference_mode():
        return model.generate(ids, **options(mask, new_tokens))[:, ids.shape[1] :]


def decode_tokens(
    swarm: Swarm, ids: Tensor, mask: Tensor | None = None, new_tokens: int = NEW_TOKENS
) -> tuple[Tensor, SwarmRequest]:
    session = SwarmRequest.create(f"request-{next(_NUMBERS)}", swarm.plan)

    async def tokens() -> list[Tensor]:
        steps = decode(swarm.router, session, BatchedHead(swarm.stack), ids, **options(mask, new_tokens))
        return [chosen async for chosen in steps]

    return torch.stack(swarm.run(tokens()), dim=1), session


def build_from_bytes(
    stack: Stack, nodes: int, replicas: int = 1, schedule: Schedule | None = None, **settings: Any
) -> Swarm:
    supply = Supply(stack, Plan.identity(stack.depth), [f"node-{number}" for number in range(nodes)], replicas)
    transport = LocalTransport({name: Node(name) for name in supply.placement}, schedule or Schedule())
    swarm = Swarm(stack, transport, supply, SwarmSettings(spot_share=0.0, **settings), loop_factory=VirtualLoop)
    swarm.run(swarm.load_nodes())
    return swarm


@cache
def llama() -> Stack:
    return inspect_model(specimen.build(named("llama")), prompts(1)[0])


def encode_passes(stack: Stack, ids: Tensor, length: int) -> list[Pass]:
    reading = CachedDecoding(stack, prepare_generation(stack, ids[:, :length], options()))
    made = []
    for index, end in enumerate(range(length, ids.shape[1] + 1)):
        captured = reading.capture(ids[:, :end])
        made.append(encode(captured, [1, 2], index))
        with torch.inference_mode():
            reading.update(stack.finish_pass(captured.state, captured.inputs), captured.state)
    return made


def inspect_model(model: nn.Module, ids: Tensor) -> Stack:
    stack = load(model)
    stack.inspect(input_ids=ids)
    return stack


def events(swarm: Swarm, kinds: Sequence[str]) -> list[str]:
    return [event.text for event in swarm.members.events if event.kind in kinds]
