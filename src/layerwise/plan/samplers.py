"""Draw a random plan for every forward pass: layers in random order (`Shuffle`) or skipped (`Drop`, `Failout`).

`SeededSampler` makes each plan depend only on the seed and the index of the forward pass, so that resumed and
distributed training runs draw the same plans. A skipped layer is not computed and gets no gradient in that pass. If
`preserve`, it is computed with gain 0 instead, as in `(3):gain=0`: the output is the same, and its gradients are zero.
DDP needs this unless `find_unused_parameters` is set.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol, TypeVar

from layerwise.errors import PlanError, near_matches
from layerwise.plan.checks import check_depth, describe_value
from layerwise.plan.plan import Group, Plan, Reduction, Stage, Visit

_Item = TypeVar("_Item")

SILENT = Reduction("gain", 0.0)


class Sampler(Protocol):
    """Interface of samplers, which draw a plan for a model of `depth` layers with the random numbers of `chance`."""

    def draw(self, depth: int, chance: random.Random) -> Plan: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Sampler that always returns the same plan (default: the identity plan).

    >>> SeededSampler(Fixed(), depth=4, seed=0).at(7)
    Plan('0-3')
    """

    plan: Plan | None = None

    def draw(self, depth: int, chance: random.Random) -> Plan:
        plan = self.plan or Plan.identity(depth)
        plan.check(depth)
        return plan

    def __str__(self) -> str:
        return "in order" if self.plan is None else f"fixed: {self.plan}"


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Sampler that runs every layer once, in random order.

    If `reach` is None, all orders are equally likely. Otherwise each layer i draws u uniformly from [0, reach + 1), and
    the layers are sorted by i + u. No layer moves by more than `reach` positions (Lample et al., 2018, section 3.3).

    >>> SeededSampler(Shuffle(), depth=6, seed=0).at(0) == SeededSampler(Shuffle(), depth=6, seed=0).at(0)
    True
    """

    reach: int | None = None

    def __post_init__(self) -> None:
        if self.reach is not None and (type(self.reach) is not int or self.reach < 1):
            raise PlanError(
                f"reach must be an integer number of positions of at least 1, got {describe_value(self.reach)}"
            )

    def draw(self, depth: int, chance: random.Random) -> Plan:
        check_depth(depth, least=2)
        layers = list(range(depth))
        if self.reach is None:
            chance.shuffle(layers)
        else:
            keys = [layer + chance.random() * (self.reach + 1) for layer in layers]
            layers.sort(key=keys.__getitem__)
        return Plan.of(layers)

    def __str__(self) -> str:
        return "shuffled" if self.reach is None else f"shuffled by at most {self.reach} places"


@dataclass(frozen=True, slots=True)
class Drop:
    """Sampler that draws a plan from `of` and skips each layer in it independently with probability `share`.

    If no layer remains, the skipped layers are drawn again. If `preserve`, skipped layers run with gain 0 instead.

    >>> Drop(0.5).draw(4, random.Random(1))
    Plan('1 2')
    >>> Drop(0.5, preserve=True).draw(4, random.Random(1))
    Plan('(0):gain=0 1 2 (3):gain=0')
    """

    share: float
    of: Sampler = field(default_factory=Fixed)
    preserve: bool = False

    def __post_init__(self) -> None:
        _check_share("layers dropped", self.share)

    def draw(self, depth: int, chance: random.Random) -> Plan:
        plan = self.of.draw(depth, chance)
        return _without_lost(
            plan, lambda: frozenset(_draw_lost(range(plan.evaluations), self.share, chance)), self.preserve
        )

    def __str__(self) -> str:
        return f"{self.of}, {self.share:g} of the layers {'silenced' if self.preserve else 'dropped'}"


@dataclass(frozen=True, slots=True)
class Failout:
    """Sampler that draws a plan from `of`, lets each node fail with probability `share`, and skips its layers.

    `nodes` lists the layers of each node. Layers that are on no node never fail. If no layer remains, failures are
    drawn again. If `preserve`, skipped layers run with gain 0 instead.

    >>> Failout(((0, 1), (2, 3)), 0.5).draw(4, random.Random(3))
    Plan('2 3')
    """

    nodes: tuple[tuple[int, ...], ...]
    share: float
    of: Sampler = field(default_factory=Fixed)
    preserve: bool = False

    def __post_init__(self) -> None:
        _check_share("nodes that fail", self.share)
        placed = [layer for node in self.nodes for layer in node]
        if not placed or not all(self.nodes) or any(type(layer) is not int or layer < 0 for layer in placed):
            raise PlanError(f"nodes must be non-empty tuples of layers, such as ((0, 1), (2, 3)), got {self.nodes}")
        twice = sorted(layer for layer, count in Counter(placed).items() if count > 1)
        if twice:
            raise PlanError(f"each layer must be on only one node, but several nodes have {', '.join(map(str, twice))}")

    def draw(self, depth: int, chance: random.Random) -> Plan:
        beyond = [layer for node in self.nodes for layer in node if layer >= depth]
        if beyond:
            raise PlanError(f"the nodes have layer {beyond[0]}, but the model has layers 0 to {depth - 1}")
        plan = self.of.draw(depth, chance)
        order = plan.order()

        def lost() -> frozenset[int]:
            failed = {layer for node in _draw_lost(self.nodes, self.share, chance) for layer in node}
            return frozenset(position for position, layer in enumerate(order) if layer in failed)

        return _without_lost(plan, lost, self.preserve)

    def __str__(self) -> str:
        nodes = "|".join(str(Plan.of(node)) for node in self.nodes)
        return f"{self.of}, {self.share:g} of the nodes {nodes} {'silenced' if self.preserve else 'failed'}"


@dataclass(frozen=True, slots=True)
class SeededSampler:
    """Draws plans that depend only on the seed, the `stream` and the index of the forward pass.

    Processes that must draw different plans have different streams.

    >>> draws = SeededSampler(Shuffle(), depth=12, seed=0)
    >>> draws.at(3) == draws.at(3), draws.at(3) == draws.at(4)
    (True, False)
    """

    sampler: Sampler
    depth: int
    seed: int
    stream: str = ""

    def at(self, *index: int) -> Plan:
        """Return the plan of the forward pass with this index, such as (step, microbatch)."""
        return self.sampler.draw(self.depth, random.Random(f"{self.seed}/{self.stream}/{'/'.join(map(str, index))}"))


LAYOUTS = ("blocks", "round-robin")

Nodes = tuple[tuple[int, ...], ...]
"""The layers of each node, in ascending order."""


def node_layout(depth: int, count: int, layout: str = "blocks") -> Nodes:
    """Distribute `depth` layers over `count` nodes, in contiguous `blocks` or `round-robin`.

    >>> node_layout(7, 3), node_layout(7, 3, "round-robin")
    (((0, 1, 2), (3, 4), (5, 6)), ((0, 3, 6), (1, 4), (2, 5)))

    Raises `PlanError` for more nodes than layers, and for a layout that is not in `LAYOUTS`.
    """
    check_depth(depth)
    if type(count) is not int or not 1 <= count <= depth:
        raise PlanError(
            f"the number of nodes must be from 1 to {depth}, the number of layers, got {describe_value(count)}"
        )
    match layout:
        case "blocks":
            each, more = divmod(depth, count)
            starts = [node * each + min(node, more) for node in range(count + 1)]
            return tuple(tuple(range(start, stop)) for start, stop in pairwise(starts))
        case "round-robin":
            return tuple(tuple(range(node, depth, count)) for node in range(count))
    raise PlanError(f"unknown layout {layout!r}; {near_matches(layout, LAYOUTS)}")


RULES = ("first", "last", "even", "random")


def layer_subset(depth: int, count: int, rule: str, chance: random.Random | None = None) -> tuple[int, ...]:
    """Choose `count` of `depth` layers by a rule, and return them in ascending order.

    With K = `count` and L = `depth`, `first` and `last` choose the first or last K layers, and `random` draws K layers
    with `chance`. `even` chooses layers floor((i + 1/2) L / K) for i = 0..K-1, as recommended for LayerDrop.

    >>> layer_subset(12, 6, "even")
    (1, 3, 5, 7, 9, 11)
    """
    check_depth(depth)
    if type(count) is not int or not 1 <= count <= depth:
        raise PlanError(f"the number of layers to keep must be from 1 to {depth}, got {describe_value(count)}")
    match rule:
        case "first":
            return tuple(range(count))
        case "last":
            return tuple(range(depth - count, depth))
        case "even":
            return tuple((2 * index + 1) * depth // (2 * count) for index in range(count))
        case "random" if chance is not None:
            return tuple(sorted(chance.sample(range(depth), count)))
    raise PlanError(f"unknown rule {rule!r}; {near_matches(rule, RULES)}")


def shuffled_subset(layers: tuple[int, ...], chance: random.Random) -> Plan:
    order = list(layers)
    chance.shuffle(order)
    return Plan.of(order)


def _check_share(what: str, share: float) -> None:
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share < 1:
        raise PlanError(
            f"the share of {what} must be a probability in [0, 1), got {describe_value(share)}; LayerDrop's authors "
            "recommend 0.2"
        )


def _draw_lost(items: Iterable[_Item], share: float, chance: random.Random) -> list[_Item]:
    return [item for item in items if chance.random() < share]


def _without_lost(plan: Plan, lost: Callable[[], frozenset[int]], preserve: bool) -> Plan:
    rows = [stage for stage in plan.stages if isinstance(stage, Visit)]
    if len(rows) < len(plan.stages):
        raise PlanError(f"layers can be dropped at random only from plans without groups and blocks, got {plan}")
    singles = [visit if visit.times == 1 else replace(visit, times=1) for visit in rows]
    visits = [single for single, visit in zip(singles, rows, strict=True) for _ in range(visit.times)]
    gone = lost()
    while len(gone) == len(visits):
        gone = lost()
    kept: list[Stage] = []
    for position, visit in enumerate(visits):
        if position not in gone:
            kept.append(visit)
        elif preserve:
            kept.append(Group((Plan((visit,)),), SILENT))
    return Plan(tuple(kept))
