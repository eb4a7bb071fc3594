"""The cache of a model as a draft of its layers sees it: the model's own slots, and no others.

Every layer of a draft reads the past that the model itself has computed for it, and writes behind it. What it wrote is
cut off again before the model verifies the drafts. So there is no second cache and no second pass over the prompt, and
a draft without the first layers still knows how long the text is.

A plan that visits a layer again has no past of its own for that visit. The visit reads the past of the layer, and
writes into a copy of the slot's fields that is dropped after the round.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from transformers import Cache, DynamicCache

from layerwise.errors import UnsupportedModel
from layerwise.plan import Step


class DraftCache(DynamicCache):
    """A view on slots of another cache: what it is asked of a slot, and what is written, concerns that very slot."""

    def __init__(self, slots: Sequence[Any]) -> None:
        Cache.__init__(self, layers=list(slots))


def by_layer(cache: Cache, steps: Sequence[Step]) -> DraftCache:
    """A view whose slots have the numbers of the layers, for a draft that visits each of its layers once.

    A layer that is left out has a slot, which is never written: models ask it how long the text is. In its place
    stands the slot of a layer of the same kind (sliding or full) that the draft visits.
    """
    visited = {step.layer: cache.layers[step.layer] for step in steps}
    kinds = {type(slot): slot for slot in reversed(visited.values())}
    anything = next(iter(visited.values()))
    return DraftCache([visited.get(i, kinds.get(type(slot), anything)) for i, slot in enumerate(cache.layers)])


def by_visit(cache: Cache, steps: Sequence[Step]) -> DraftCache:
    """A view with one slot a visit, in the order of the visits."""
    owners = owning_visits(steps)
    return DraftCache(
        [
            cache.layers[step.layer] if visit in owners else copy.copy(cache.layers[step.layer])
            for visit, step in enumerate(steps)
        ]
    )


def owning_visits(steps: Sequence[Step]) -> frozenset[int]:
    """The visits that write into the slot of their layer: the first of each layer, one that attends if there is one."""
    first: dict[int, int] = {}
    for visit, step in enumerate(steps):
        if step.layer not in first or (steps[first[step.layer]].sublayer == "mlp" != step.sublayer):
            first[step.layer] = visit
    return frozenset(first.values())


def cut(cache: Cache, layers: Sequence[int] | None, tokens: int) -> None:
    """Cut the last `tokens` off the slots of `layers`, or of all; what only a longer past needed goes as well."""
    for slot in cache.layers if layers is None else [cache.layers[layer] for layer in layers]:
        slot.crop(-tokens)


def record_past(cache: Cache) -> None:
    """From now on slots keep what falls out of their window until it is known how many tokens stay."""
    cache.activate_past_recording()


def forget_past(cache: Cache) -> None:
    """Slots keep their windows alone again, as before `record_past`."""
    for slot in cache.layers:
        if getattr(slot, "record_past", False):
            slot.record_past = False


def refuse_unlike(cache: Any, name: str) -> None:
    """Raise `UnsupportedModel` for a cache from which tokens cannot be cut off, with the reason."""
    wish = f"cannot decode {name} speculatively: "
    if not isinstance(cache, Cache) or not hasattr(cache, "layers"):
        raise UnsupportedModel(
            f"{wish}it keeps its past in a {type(cache).__name__}, from which rejected tokens cannot be cut off; "
            "call generate without custom_generate"
        )
    if cache.offloading:
        raise UnsupportedModel(f"{wish}its cache is offloaded; leave cache_implementation out")
    for slot in cache.layers:
        kind = type(slot).__name__
        if "Linear" in kind:
            raise UnsupportedModel(
                f"{wish}it has recurrent layers ({kind}), whose state cannot go back to before a rejected token; "
                "call generate without custom_generate"
            )
        if kind not in ("DynamicLayer", "DynamicSlidingWindowLayer", "DynamicIndexedLayer", "DummyLayer"):
            raise UnsupportedModel(
                f"{wish}its cache is made of {kind}, from which rejected tokens cannot be cut off; leave "
                "cache_implementation out, for a dynamic cache"
            )
