"""What a plan costs in layers, milliseconds and bytes, by tables that say what each layer and each half costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.search.budget import Unit
from layerwise.stack import Stack

Piece = tuple[int, str | None]
"""A layer, and the half of it that runs; `None` for the whole layer."""


@dataclass(frozen=True, slots=True)
class PriceTable:
    """What every layer and half costs, and all that is not a layer (embedding, norm, head)."""

    pieces: Mapping[Piece, float]
    rest: float


@dataclass(frozen=True)
class PlanPrices:
    """The tables of a model: bytes always, milliseconds where they were measured (`layerwise.search.timing`)."""

    depth: int
    bytes: PriceTable
    ms: PriceTable | None = None
    _known: dict[tuple[Plan, Unit], float] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, stack: Stack, ms: PriceTable | None = None) -> PlanPrices:
        """The prices of a model, its bytes counted; a weight that several modules share counts once."""
        return cls(stack.depth, byte_table(stack), ms)

    def of_plan(self, plan: Plan, unit: Unit) -> float:
        """What a plan costs: a sum over its steps, but of bytes over the distinct weights that it needs.

        A half of a layer is half a layer. An average of layers has the price of the first of them. Groups cost the sum
        of their members: on one machine they run in turn.
        """
        known = self._known.get((plan, unit))
        if known is None:
            known = self._known[plan, unit] = self._sum(plan, unit)
        return known

    def _sum(self, plan: Plan, unit: Unit) -> float:
        steps = [(step.layer, step.sublayer) for step in plan.steps()]
        if unit == "layers":
            return sum(1.0 if sublayer is None else 0.5 for _, sublayer in steps)
        if unit == "ms":
            if self.ms is None:
                raise ValueError("milliseconds were not measured; give PlanPrices a table of them")
            return self.ms.rest + sum(self.ms.pieces[step] for step in steps)
        needed = {(step.source, step.layer, step.sublayer) for step in plan.steps()}
        distinct = {each for each in needed if each[2] is None or (*each[:2], None) not in needed}
        return self.bytes.rest + sum(self.bytes.pieces[layer, sublayer] for _, layer, sublayer in distinct)


def byte_table(stack: Stack) -> PriceTable:
    """The bytes of every layer, of its halves where the model can be split, and of all other weights."""
    blocks = [stack.block(layer) for layer in range(stack.depth)]
    pieces: dict[Piece, float] = {(layer, None): float(_bytes(block)) for layer, block in enumerate(blocks)}
    whole = float(_bytes(stack.model))
    try:
        paths = stack.branches().paths
    except UnsupportedModel:
        paths = ()
    for layer, pair in enumerate(paths):
        halves = {name: float(_bytes(blocks[layer].get_submodule(path))) for name, path in pair.items()}
        rest = pieces[layer, None] - sum(halves.values())  # norms, which both halves need
        pieces |= {(layer, name): size + rest for name, size in halves.items()}
    return PriceTable(pieces, whole - sum(pieces[layer, None] for layer in range(stack.depth)))


def _bytes(module: nn.Module) -> int:
    return sum(each.numel() * each.element_size() for each in module.parameters())
