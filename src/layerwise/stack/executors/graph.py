"""Many plans as one graph, in which nothing that two plans share is computed twice.

Every state that a plan passes through is a node: the captured state, one layer applied to a node, or a group merged
from its branches. Nodes are hash-consed: the same layer applied to the same node is the same node, whichever plans ask
for it. The number of `Apply` nodes is therefore the least number of layer evaluations that these plans can cost, and is
known before anything runs.

Execution walks the graph depth first and frees a state when its last reader has read it. At a fork the reader with the
most work below it goes last, so that the forked state is let go before the long way down; live states then grow with
the logarithm of the number of plans, not with their number. Where layers read the record of all that came before
(`layerwise.stack.history.depth_history`), a live state keeps its record alive: the states on the ways to those that are
live, at most as many for each as there are layers, and one for each prefix that ways share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from layerwise.plan import Plan, Reduction, Sublayer
from layerwise.stack.executors.state import Merger


@dataclass(frozen=True, slots=True)
class Root:
    """The captured state."""


@dataclass(frozen=True, slots=True)
class Apply:
    """One layer, or the half that `sublayer` names, of the model `source`, applied to the state of node `state`."""

    layer: int
    state: int
    sublayer: Sublayer | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class MergeNode:
    """A group closed: `branches`, each the node at the end of one, merged around the state of node `base`."""

    merge: Reduction
    base: int
    branches: tuple[int, ...]


Node = Root | Apply | MergeNode


@dataclass(frozen=True)
class Graph:
    """The nodes that a set of plans needs, what is read before its readers, and the node each plan ends at.

    `evaluations` is the lower bound on layer evaluations; `naive` what running the plans one by one would take.
    """

    nodes: tuple[Node, ...]
    ends: dict[Plan, int]
    naive: int

    @property
    def evaluations(self) -> int:
        """The number of distinct (layer or half of some model, state) pairs: no executor can do with fewer."""
        return sum(isinstance(node, Apply) for node in self.nodes)

    @property
    def heads(self) -> int:
        """The number of distinct final states: each is sent through the model's head once."""
        return len(set(self.ends.values()))


def build(plans: Iterable[Plan]) -> Graph:
    """The hash-consed graph of `plans`; equal plans count once."""
    lowering = Lowering()
    for plan in plans:
        lowering.add(plan)
    return Graph(tuple(lowering.nodes), lowering.ends, lowering.naive)


@dataclass(slots=True)
class Lowering:
    """A graph that grows plan by plan, and what it costs so far: `evaluations` layer evaluations, `heads` heads."""

    nodes: dict[Node, int] = field(default_factory=lambda: {Root(): 0})
    ends: dict[Plan, int] = field(default_factory=dict)
    naive: int = 0
    evaluations: int = 0
    _final: set[int] = field(default_factory=set)

    @property
    def heads(self) -> int:
        """The number of distinct final states."""
        return len(self._final)

    def add(self, plan: Plan) -> None:
        """Add the nodes that a plan needs and that are not there yet; an equal plan adds nothing."""
        if plan not in self.ends:
            self.ends[plan] = self._lower(plan)
            self._final.add(self.ends[plan])
            self.naive += len(plan.steps())

    def _lower(self, plan: Plan) -> int:
        nodes, current = self.nodes, 0
        groups: list[tuple[int, list[int]]] = []
        for step in plan.steps():
            groups.extend((current, []) for _ in range(step.opens))
            before = len(nodes)
            current = nodes.setdefault(Apply(step.layer, current, step.sublayer, step.source), before)
            self.evaluations += len(nodes) - before
            for close in step.closes:
                base, branches = groups[-1]
                branches.append(current)
                if close is None:
                    current = base
                else:
                    groups.pop()
                    current = nodes.setdefault(MergeNode(close, base, tuple(branches)), len(nodes))
        return current


def inputs(node: Node) -> tuple[int, ...]:
    """The nodes whose states `node` reads, in the order in which it reads them, with repetition."""
    match node:
        case Apply(state=state):
            return (state,)
        case MergeNode(base=base, branches=branches):
            return (base, *branches)
        case Root():
            return ()


def schedule(graph: Graph, first: int | None = None) -> list[int]:
    """The order in which to compute the nodes: depth first, at a fork the lightest way down first.

    The way down to the node `first` goes before every other; the states that it passes stay live until those below them
    are done, at most as many as the way is long.

    Every node hangs below the one it starts from (a layer below its input, a join below its base). The branches of a
    join are computed one after another just before it, so that each can be folded in and let go.
    """
    below: list[list[int]] = [[] for _ in graph.nodes]
    weight = [1] * len(graph.nodes)
    for index in range(len(graph.nodes) - 1, 0, -1):
        parent = inputs(graph.nodes[index])[0]
        below[parent].append(index)
        weight[parent] += weight[index]
    way = _way(graph, first)
    order: dict[int, None] = {}
    waiting = [(0, True)]
    while waiting:
        index, descend = waiting.pop()
        missing = [read for read in inputs(graph.nodes[index]) if read not in order]
        if index not in order and missing:
            waiting.append((index, descend))
            waiting.extend((read, False) for read in reversed(missing))
            continue
        order.setdefault(index)
        if descend:
            waiting.extend(
                (child, True) for child in sorted(below[index], key=lambda child: (child in way, -weight[child]))
            )
    return list(order)


def _way(graph: Graph, end: int | None) -> frozenset[int]:
    """The node `end` and all that it hangs below."""
    visited = []
    while end:
        visited.append(end)
        end = inputs(graph.nodes[end])[0]
    return frozenset(visited)


@dataclass
class GraphExecutor:
    """One execution of a graph on one batch.

    `apply(layer, state, part, source)` runs a layer, or one half of it, of one model. `states()` yields the states at
    which plans end, each as soon as it is there, but that of the plan `first` before all others. `evaluated` counts
    layer evaluations, `most_live` the most states that were held at once.
    """

    graph: Graph
    apply: Callable[[int, Tensor, Sublayer | None, str | None], Tensor]
    root: Tensor
    first: Plan | None = None
    evaluated: int = 0
    most_live: int = 0
    _live: dict[int, Tensor] = field(default_factory=dict)
    _reads_left: Counter[int] = field(default_factory=Counter)
    _joins: dict[int, _PartialMerge] = field(default_factory=dict)
    _folds_of: dict[int, list[_PartialMerge]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for index, node in enumerate(self.graph.nodes):
            self._reads_left.update(inputs(node))
            if isinstance(node, MergeNode):
                fold = _PartialMerge(index, node)
                for branch in set(node.branches):
                    self._folds_of[branch].append(fold)

    def states(self) -> Iterator[tuple[int, Tensor]]:
        """Walk the graph; yields `(node, state)` for every node at which a plan ends, each once."""
        first = None if self.first is None else self.graph.ends.get(self.first)
        passed: list[tuple[int, Tensor]] = []  # ends on the way to the first, which wait for it
        for index, state in self.walk(schedule(self.graph, first)):
            if first is not None and index != first:
                passed.append((index, state))
            else:
                yield index, state
                yield from passed
                passed, first = [], None

    def walk(self, order: Iterable[int]) -> Iterator[tuple[int, Tensor]]:
        """Compute some more nodes, in this order; yields `(node, state)` for those of them at which a plan ends."""
        ends = frozenset(self.graph.ends.values())
        for index in order:
            state = self._compute(index)
            if index in ends:
                yield index, state
            if self._reads_left[index]:
                self._live[index] = state
                for fold in self._folds_of[index]:
                    self._advance(fold)
            self.most_live = max(self.most_live, self.live)

    @property
    def live(self) -> int:
        """The states that are held now; a group that is being merged holds two."""
        return len(self._live) + 2 * len(self._joins)

    def _compute(self, index: int) -> Tensor:
        match self.graph.nodes[index]:
            case Apply(layer, state, sublayer, source):
                self.evaluated += 1
                return self.apply(layer, self._read(state), sublayer, source)
            case MergeNode(merge=merge):
                merger = self._joins.pop(index).merger
                assert merger is not None
                return merger.result(merge)
            case Root():
                return self.root

    def _advance(self, fold: _PartialMerge) -> None:
        """Fold in every branch that is there, in the order of the plan's text and no other."""
        branches = fold.node.branches
        while fold.done < len(branches) and branches[fold.done] in self._live:
            if fold.merger is None:
                fold.merger = Merger(self._read(fold.node.base))
                self._joins[fold.index] = fold
            fold.merger.add(self._read(branches[fold.done]))
            fold.done += 1

    def _read(self, index: int) -> Tensor:
        state = self._live[index]
        self._reads_left[index] -= 1
        if not self._reads_left[index]:
            del self._live[index]
        return state


@dataclass
class _PartialMerge:
    """A join on its way: how many of its branches are folded in."""

    index: int
    node: MergeNode
    done: int = 0
    merger: Merger | None = None


def most_live(graph: Graph) -> int:
    """The most states that an execution of the graph holds at once, by one on empty states."""
    walk = GraphExecutor(graph, lambda layer, state, part, source: state, torch.empty(0))
    for _ in walk.states():
        pass
    return walk.most_live
