"""Whether a swarm can serve a model, which is found out before any node is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from layerwise.errors import UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import Capture, Stack
from layerwise.swarm.decoding.cached_decoding import CachedDecoding, prepared
from layerwise.swarm.health import sample_pass, smallest_inputs
from layerwise.swarm.live_plan import layers_of
from layerwise.swarm.messages import Hop, Release, RemoteLayer, RemoteVisit, Reply
from layerwise.swarm.nodes.node import Node, local_node
from layerwise.swarm.settings import Quorum, SwarmSettings
from layerwise.swarm.trust import agree
from layerwise.swarm.wire import encode, to_tensor


@dataclass(frozen=True, slots=True)
class Servable:
    """A model whose layers can run elsewhere: a small pass through them, a node of the router's own layers, and the
    quorum of its plan."""

    sample: Capture
    referee: Node
    quorum: Quorum

    @classmethod
    def of(cls, stack: Stack, plan: Plan, settings: SwarmSettings) -> Self:
        """Raises `UnsupportedModelError` for a model whose layers cannot run elsewhere, and `SwarmError` for a quorum
        that its plan never meets."""
        layers = layers_of(plan)
        quorum = settings.quorum_of(len(layers))
        sample = sample_pass(stack, [layer.number for layer in layers])
        referee = local_node("router", stack, layers, halves=plan.has_sublayers())
        if writes(stack):
            refuse_unlike(stack, referee)
        return cls(sample, referee, quorum)


def writes(stack: Stack) -> bool:
    can_generate = getattr(stack.model, "can_generate", None)
    return can_generate is not None and bool(can_generate())


def refuse_unlike(stack: Stack, node: Node) -> None:
    """Raise `UnsupportedModelError` if two passes differ from one, with another text's pass on the same `node` between
    them.

    Some models keep state in their blocks (RecurrentGemma); in others a token changes earlier positions (CPM-Ant).
    """
    ids = smallest_inputs(stack)["input_ids"]
    layers = [layer.number for layer in node.layers if not layer.source]
    visits = tuple(RemoteVisit(slot, RemoteLayer(layer)) for slot, layer in enumerate(layers))
    options = {"max_new_tokens": 2, "do_sample": False}

    def state(request: str, number: int, index: int, captured: Capture) -> Tensor:
        reply = node.handle(Hop(request, number, visits, encode(captured, layers, index)))
        if isinstance(reply, Reply):
            return to_tensor(reply.state)[:, -1]
        raise UnsupportedModelError(f"the layers of {type(stack.model).__name__} cannot run on a node: {reply}")

    one, other = (CachedDecoding(stack, prepared(stack, each[:, :-1], options)) for each in (ids, ids.flip(1)))
    first = one.capture(ids[:, :-1])
    state("one", 0, 0, first)
    state("other", 0, 0, other.capture(ids.flip(1)[:, :-1]))
    with torch.inference_mode():
        one.passed(stack.finish_pass(first.state, first.inputs), first.state)
    apart = state("one", 1, 1, one.capture(ids))
    whole = state("one", 2, 0, one.recapture(ids, one.ready.inputs))
    for request in ("one", "other"):
        node.handle(Release(request))
    if not agree(apart, whole, len(layers)):
        raise UnsupportedModelError(
            f"{type(stack.model).__name__} reads a text otherwise in one pass than in two with another text between "
            "them. A swarm does both: it answers several requests at once, and a node that takes over reads a text "
            "from its beginning. Use generate instead"
        )
