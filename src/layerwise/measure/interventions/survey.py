"""Evaluate a model with reordered and with fewer layers. Random draws do not depend on the model.

Conditions have these names, where `random` draws an order for every batch, and `sequential` may replace `random`:

    random                            all layers
    kept 6 even random                six layers, selected by the rule `even` (see `layerwise.plan.samplers`)
    without 3 random                  all layers but layer 3
    nodes 4 blocks without 2 random   the layers are on four nodes, in blocks, and node 2 is missing
    nodes 4 blocks any 2 random       two nodes are missing, drawn for every batch
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from layerwise.bounded import check_archive
from layerwise.errors import MeasureError, RunError
from layerwise.measure.activations.by_position import PositionTables
from layerwise.measure.interventions.accuracy import BATCH, Predictions, evaluate
from layerwise.plan import Plan
from layerwise.plan.edits import skip
from layerwise.plan.samplers import LAYOUTS, RULES, layer_subset, node_layout, shuffled_subset
from layerwise.results.vocabulary import RANDOM_ORDER, SEQUENTIAL
from layerwise.stack import Stack


@dataclass(frozen=True, slots=True)
class EvaluationGrid:
    """The conditions of a survey.

    Args:
        orders: Number of fixed random orders, each evaluated on all examples.
        draws: Minimum number of batches in random conditions.
        kept: Numbers of layers to keep (default: all below the depth).
        rules: Rules that select the layers to keep.
        layers: Whether to skip each layer in turn.
        seed: Seed of all random draws.
        nodes: Numbers of nodes to distribute the layers over; each node is missing in turn.
    """

    orders: int = 100
    draws: int = 16
    kept: tuple[int, ...] | None = None
    rules: tuple[str, ...] = RULES
    layers: bool = True
    seed: int = 0
    nodes: tuple[int, ...] = ()

    def batch_size(self, examples: int) -> int:
        return max(1, min(BATCH, examples // self.draws))

    def depths(self, depth: int) -> tuple[int, ...]:
        counts = range(1, depth) if self.kept is None else self.kept
        return tuple(sorted((count for count in counts if count < depth), reverse=True))


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """The nodes that are missing out of `count` nodes: a fixed `node`, or `several` that are drawn for each batch."""

    count: int
    layout: str
    node: int | None = None
    several: int = 1

    @property
    def name(self) -> str:
        lost = f"any {self.several}" if self.node is None else f"without {self.node}"
        return f"nodes {self.count} {self.layout} {lost}"

    def layers(self, depth: int, seed: int, batch: int) -> tuple[int, ...]:
        nodes = node_layout(depth, self.count, self.layout)
        if self.node is not None:
            return nodes[self.node]
        lost = random.Random(f"{seed}/{self.name}/{batch}").sample(nodes, self.several)
        return tuple(sorted(layer for node in lost for layer in node))

    def max_layers(self, depth: int) -> int:
        sizes = sorted(map(len, node_layout(depth, self.count, self.layout)), reverse=True)
        return sum(sizes[: self.several]) if self.node is None else len(self.layers(depth, 0, 0))


@dataclass(frozen=True, slots=True)
class Condition:
    """Layers that run: all, `count` selected by `rule`, or all except layer `without` or those of missing `nodes`."""

    count: int
    rule: str | None
    in_order: bool
    without: int | None = None
    nodes: NodeLoss | None = None

    @property
    def name(self) -> str:
        order = SEQUENTIAL if self.in_order else RANDOM_ORDER
        if self.nodes is not None:
            return f"{self.nodes.name} {order}"
        if self.without is not None:
            return f"without {self.without} {order}"
        return order if self.rule is None else f"kept {self.count} {self.rule} {order}"

    def columns(self, depth: int) -> Mapping[str, Any]:
        columns: dict[str, Any] = {"order": SEQUENTIAL if self.in_order else RANDOM_ORDER}
        if self.nodes is not None:
            lost, node = self.nodes, self.nodes.node
            columns |= {"layout": lost.layout, "nodes": lost.count, "failed": lost.several}
            if node is not None:
                columns["node"] = node_layout(depth, lost.count, lost.layout)[node][0]
        elif self.without is not None:
            columns["layer"] = self.without
        elif self.rule is not None:
            columns |= {"strategy": self.rule, "kept": self.count}
        return columns

    @property
    def is_drawn(self) -> bool:
        return not self.in_order or self.rule == "random" or (self.nodes is not None and self.nodes.node is None)

    def plan(self, depth: int, seed: int, batch: int) -> Plan:
        plan = self.order(depth, seed, batch)
        if self.nodes is not None:
            return skip(plan, *self.nodes.layers(depth, seed, batch))
        return plan if self.without is None else skip(plan, self.without)

    def is_original(self, depth: int, seed: int, batch: int) -> bool:
        """Check whether the random order drawn for a batch is the original order.

        A skipped layer counts as part of the order. The layers of missing nodes do not.
        """
        draw = self.order if self.nodes is None else self.plan
        drawn = draw(depth, seed, batch).order()
        return drawn == tuple(sorted(drawn))

    def order(self, depth: int, seed: int, batch: int) -> Plan:
        """Return the plan of a batch before layers are skipped, drawing its layers and their order separately."""
        subset = random.Random(f"{seed}/kept/{self.count}/{self.rule}/{batch}")
        layers = tuple(range(depth)) if self.rule is None else layer_subset(depth, self.count, self.rule, subset)
        if self.in_order:
            return Plan.of(layers)
        name = replace(self, without=None, nodes=None).name
        return shuffled_subset(layers, random.Random(f"{seed}/{name}/{batch}"))


def conditions(depth: int, grid: EvaluationGrid) -> Iterator[Condition]:
    if depth < 2:
        raise MeasureError(f"A survey needs a model with at least 2 layers, got {depth}.")
    yield Condition(depth, None, True)
    yield Condition(depth, None, False)
    for rule in grid.rules:
        for count in grid.depths(depth):
            yield Condition(count, rule, True)
            if count > 1:
                yield Condition(count, rule, False)
    for layer in range(depth if grid.layers else 0):
        yield Condition(depth, None, True, without=layer)
        yield Condition(depth, None, False, without=layer)
    for lost in _node_losses(depth, grid.nodes):
        yield Condition(depth, None, True, nodes=lost)
        if depth - lost.max_layers(depth) > 1:
            yield Condition(depth, None, False, nodes=lost)


@cache
def conditions_by_name(depth: int) -> Mapping[str, Condition]:
    every = EvaluationGrid(nodes=tuple(range(2, depth)))
    return {condition.name: condition for condition in conditions(depth, every)} if depth > 1 else {}


def _node_losses(depth: int, counts: Iterable[int]) -> Iterator[NodeLoss]:
    for count in sorted({count for count in counts if 1 < count < depth}):
        for layout in LAYOUTS:
            yield from (NodeLoss(count, layout, node) for node in range(count))
            yield from (NodeLoss(count, layout, several=several) for several in range(2, count))


@dataclass(frozen=True, slots=True)
class IdentityDraws:
    """The number of random draws, how many of them gave the original order, and the accuracy in that order."""

    draws: int
    identical: int
    accuracy: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """The predictions for each condition, and the accuracy and loss under each fixed order.

    Examples of a random condition that happened to run in the original order have `scored == 0`. `positions` maps each
    position in the order to the numbers of correct and of all predictions of it, (2, batches), and `probed` has the
    numbers for a linear probe. `tables` has the update and the importance of each layer at each position.
    """

    depth: int
    outcomes: Mapping[str, Predictions]
    orders: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    identical: Mapping[str, IdentityDraws] = field(default_factory=dict)
    positions: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    probed: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    tables: PositionTables | None = None

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {"depth": np.array(self.depth)}
        for name, outcome in self.outcomes.items():
            parts = {"hits": outcome.hits, "nll": outcome.nll, "scored": outcome.scored, "top5": outcome.hits_top5}
            arrays |= {f"{name}|{part}": values for part, values in parts.items() if values is not None}
        arrays |= {f"{plan}|order": np.array(pair) for plan, pair in self.orders.items()}
        for name, each in self.identical.items():
            arrays[f"{name}|identical"] = np.array([each.draws, each.identical, each.accuracy], dtype=np.float64)
        for name, answers in (("position", self.positions), ("probed", self.probed)):
            arrays |= {f"{position}|{name}": counts for position, counts in answers.items()}
        if self.tables is not None:
            arrays |= {"added|table": self.tables.added, "importance|table": self.tables.importance}
        draft = path.with_suffix(".draft.npz")
        np.savez_compressed(draft, **arrays)
        draft.replace(path)

    @classmethod
    def read(cls, path: Path) -> Survey:
        try:
            check_archive(path)
            with np.load(path, allow_pickle=False) as arrays:
                return cls._of({name: arrays[name] for name in arrays.files})
        # Damaged files raise many errors; a huge declared size raises a MemoryError.
        except (
            OverflowError,
            OSError,
            EOFError,
            BadZipFile,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            MemoryError,
        ) as error:
            raise RunError(
                f"`{path}` is not a survey ({type(error).__name__}: {error}). Remove it to evaluate the model again."
            ) from error

    @classmethod
    def _of(cls, arrays: Mapping[str, NDArray[Any]]) -> Survey:
        parts: dict[str, dict[str, NDArray[Any]]] = defaultdict(dict)
        for key, values in arrays.items():
            name, _, part = key.rpartition("|")
            parts[part][name] = values
        outcomes = {
            name: Predictions(hits, parts["top5"].get(name), parts["nll"][name], parts["scored"][name])
            for name, hits in parts["hits"].items()
        }
        orders = {plan: (float(accuracy), float(nll)) for plan, (accuracy, nll) in parts["order"].items()}
        identical = {
            name: IdentityDraws(int(draws), int(same), None if math.isnan(share) else float(share))
            for name, (draws, same, share) in parts["identical"].items()
        }
        positions, probed = (
            {int(position): counts for position, counts in parts[part].items()} for part in ("position", "probed")
        )
        tables = PositionTables(parts["table"]["added"], parts["table"]["importance"]) if parts["table"] else None
        return cls(int(parts["depth"][""]), outcomes, orders, identical, positions, probed, tables)


Progress = Callable[[int, int], None]
"""Called with the number of completed conditions and the number of all conditions."""


def survey(
    stack: Stack,
    examples: Any,
    collate: Callable[[Sequence[Any]], dict[str, Tensor]],
    grid: EvaluationGrid,
    *,
    only: Sequence[Condition] | None = None,
    progress: Progress | None = None,
) -> Survey:
    """Evaluate the model under the conditions and fixed orders of `grid`, or just under the conditions `only`."""
    selected = tuple(conditions(stack.depth, grid)) if only is None else tuple(only)
    orders = _fixed_orders(stack.depth, grid) if only is None else ()
    total = len(selected) + len(orders)
    outcomes: dict[str, Predictions] = {}
    identical: dict[str, IdentityDraws] = {}
    by_order: dict[str, tuple[float, float]] = {}
    for number, condition in enumerate(selected):
        outcome, apart = _evaluate_condition(stack, examples, collate, condition, grid)
        outcomes[condition.name] = outcome
        if apart is not None:
            identical[condition.name] = apart
        if progress is not None:
            progress(number + 1, total)
    for number, plan in enumerate(orders, start=len(selected) + 1):
        under = evaluate(stack, plan, examples, collate)
        by_order[str(plan)] = (under.accuracy, under.mean_nll)
        if progress is not None:
            progress(number, total)
    return Survey(stack.depth, outcomes, by_order, identical)


def _evaluate_condition(
    stack: Stack, examples: Any, collate: Any, condition: Condition, grid: EvaluationGrid
) -> tuple[Predictions, IdentityDraws | None]:
    if not condition.is_drawn:
        return evaluate(stack, condition.plan(stack.depth, grid.seed, 0), examples, collate), None
    size = grid.batch_size(len(examples))
    plan_of = partial(condition.plan, stack.depth, grid.seed)
    outcome = evaluate(stack, plan_of, examples, collate, batch_size=size)
    if condition.in_order:
        return outcome, None
    batches = range(-(-len(examples) // size))
    original = [condition.is_original(stack.depth, grid.seed, batch) for batch in batches]
    return _separate_original(outcome, np.repeat(original, size)[: len(outcome.hits)], original)


def _separate_original(outcome: Predictions, mask: Any, original: Sequence[bool]) -> tuple[Predictions, IdentityDraws]:
    accuracy = float(outcome.hits[mask].sum() / outcome.scored[mask].sum()) if mask.any() else None
    keep = ~mask
    top5 = None if outcome.hits_top5 is None else outcome.hits_top5 * keep
    rest = Predictions(outcome.hits * keep, top5, outcome.nll * keep, outcome.scored * keep)
    return rest, IdentityDraws(len(original), sum(original), accuracy)


def _fixed_orders(depth: int, grid: EvaluationGrid) -> tuple[Plan, ...]:
    layers = tuple(range(depth))
    drawn = (shuffled_subset(layers, random.Random(f"{grid.seed}/fixed/{n}")) for n in range(grid.orders))
    return tuple(dict.fromkeys(drawn))  # few layers have few orders
