"""Run many plans as one graph, so that the steps they share are computed once.

Equal nodes are stored once, so the number of `Apply` nodes is the minimum number of layer evaluations. Execution is
depth first, and frees each state after its last use. Where plans diverge, the part with the most work is last, so that
the number of states in memory grows with the logarithm of the number of plans.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from layerwise.errors import ModelError
from layerwise.plan import Plan, Reduction, Step, Sublayer
from layerwise.stack.executors.capture import Merger


class LayerVariant(NamedTuple):
    """The version of a layer that a step runs.

    Attributes:
        sublayer: Sublayer that runs; None for both.
        source: Other model that has the layer, or type to quantize it to; None for this model.
        change: Key of the intervention; None if there is none.
    """

    sublayer: Sublayer | None = None
    source: str | None = None
    change: str | None = None


AS_IS = LayerVariant()


@dataclass(frozen=True, slots=True)
class Changed:
    """A plan with interventions, identified by `key`.

    `changes` maps the number of a step to the key of its intervention.
    """

    key: str
    plan: Plan
    changes: Mapping[int, str] = field(hash=False)

    def __str__(self) -> str:
        return self.key

    def steps(self) -> tuple[Step, ...]:
        return self.plan.steps()


@dataclass(frozen=True, slots=True)
class Root:
    """The node of the state before the first block."""


@dataclass(frozen=True, slots=True)
class Apply:
    """A layer, or a `variant` of it, applied to the state of node `state`."""

    layer: int
    state: int
    variant: LayerVariant = AS_IS


@dataclass(frozen=True, slots=True)
class MergeNode:
    """A merged group: the last node of each branch, and the node `base` from which all branches start."""

    merge: Reduction
    base: int
    branches: tuple[int, ...]


Node = Root | Apply | MergeNode


@dataclass(frozen=True)
class Graph:
    """The nodes of a set of plans in topological order, and the last node of each plan.

    `evaluations` is the minimum number of layer evaluations, and `naive` the number without sharing.
    """

    nodes: tuple[Node, ...]
    ends: dict[Plan | Changed, int]
    naive: int

    @property
    def evaluations(self) -> int:
        return sum(isinstance(node, Apply) and node.variant.change is None for node in self.nodes)

    @property
    def heads(self) -> int:
        return len(set(self.ends.values()))

    def names(self) -> dict[int, tuple[str, ...]]:
        names: dict[int, tuple[str, ...]] = {}
        for plan, node in self.ends.items():
            names[node] = (*names.get(node, ()), str(plan))
        return names

    def find_unchanged_nodes(self) -> frozenset[int]:
        clean: set[int] = set()
        for index, node in enumerate(self.nodes):
            changed = isinstance(node, Apply) and node.variant.change is not None
            if not changed and clean.issuperset(inputs(node)):
                clean.add(index)
        return frozenset(clean)


def build(plans: Iterable[Plan | Changed]) -> Graph:
    """Build the graph of `plans`, in which equal nodes are stored once."""
    nodes: dict[Node, int] = {Root(): 0}
    ends: dict[Plan | Changed, int] = {}
    for plan in plans:
        if plan not in ends:
            ends[plan] = _lower(nodes, plan)
    return Graph(tuple(nodes), ends, sum(len(plan.steps()) for plan in ends))


def _lower(nodes: dict[Node, int], plan: Plan | Changed) -> int:
    current = 0
    changes = plan.changes if isinstance(plan, Changed) else {}
    groups: list[tuple[int, list[int]]] = []
    for number, step in enumerate(plan.steps()):
        groups.extend((current, []) for _ in range(step.opens))
        variant = LayerVariant(step.sublayer, step.source, changes.get(number))
        current = nodes.setdefault(Apply(step.layer, current, variant), len(nodes))
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
    match node:
        case Apply(state=state):
            return (state,)
        case MergeNode(base=base, branches=branches):
            return (base, *branches)
        case Root():
            return ()


def schedule(graph: Graph, first: int | None = None) -> list[int]:
    """Return the order in which to compute the nodes: depth first, with the smaller subtrees first.

    The path to the node `first` comes before all others. The branches of a merge are computed just before it.
    """
    below: list[list[int]] = [[] for _ in graph.nodes]
    weight = [1] * len(graph.nodes)
    for index in range(len(graph.nodes) - 1, 0, -1):
        parent = inputs(graph.nodes[index])[0]
        below[parent].append(index)
        weight[parent] += weight[index]
    way = _path_to(graph, first)
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


def _path_to(graph: Graph, end: int | None) -> frozenset[int]:
    visited = []
    while end:
        visited.append(end)
        end = inputs(graph.nodes[end])[0]
    return frozenset(visited)


def common_steps(graph: Graph) -> list[tuple[int, ...]]:
    """Group the nodes after the root, in depth-first order, into runs that are computed without interruption.

    A run ends where a plan ends, or before a node with an intervention.
    """
    ends = frozenset(graph.ends.values())
    runs: list[list[int]] = [[]]
    for index in schedule(graph)[1:]:
        node = graph.nodes[index]
        if runs[-1] and ((isinstance(node, Apply) and node.variant.change is not None) or runs[-1][-1] in ends):
            runs.append([])
        runs[-1].append(index)
    return [tuple(run) for run in runs]


def _refuse_change(node: Apply, state: Tensor) -> Tensor:
    raise ModelError("a graph with changed nodes requires the function `change`")


@dataclass
class GraphExecutor:
    """One execution of a graph on one batch.

    Attributes:
        graph: The graph.
        apply: Function that runs a layer: `apply(layer, state, sublayer, source)`.
        root: State before the first block, as in `Capture.state`.
        first: Plan whose final state is yielded first.
        change: Function that runs an intervention: `change(node, state)`.
        watch: Function that is called with every node and its state.
        evaluated: Number of layer evaluations.
        most_live: Peak number of states in memory.
        live_states: States in memory, by node.
    """

    graph: Graph
    apply: Callable[[int, Tensor, Sublayer | None, str | None], Tensor]
    root: Tensor
    first: Plan | None = None
    change: Callable[[Apply, Tensor], Tensor] = _refuse_change
    watch: Callable[[int, Tensor], None] | None = None
    evaluated: int = 0
    most_live: int = 0
    live_states: dict[int, Tensor] = field(default_factory=dict)
    _reads_left: Counter[int] = field(default_factory=Counter)
    _mergers: dict[int, Merger] = field(default_factory=dict)
    _folds_of: dict[int, list[_PartialMerge]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for index, node in enumerate(self.graph.nodes):
            self._reads_left.update(inputs(node))
            if isinstance(node, MergeNode):
                fold = _PartialMerge(index, node)
                for branch in set(node.branches):
                    self._folds_of[branch].append(fold)

    def states(self) -> Iterator[tuple[int, Tensor]]:
        """Yield `(node, state)` for every node at which a plan ends."""
        first = None if self.first is None else self.graph.ends.get(self.first)
        passed: list[tuple[int, Tensor]] = []  # plan ends before the first one, yielded after it
        for index, state in self.walk(schedule(self.graph, first)):
            if first is not None and index != first:
                passed.append((index, state))
            else:
                yield index, state
                yield from passed
                passed, first = [], None

    def walk(self, order: Iterable[int]) -> Iterator[tuple[int, Tensor]]:
        """Compute the nodes in `order`, and yield `(node, state)` for those at which a plan ends."""
        ends = frozenset(self.graph.ends.values())
        for index in order:
            state = self._compute(index)
            if self.watch is not None:
                self.watch(index, state)
            if index in ends:
                yield index, state
            if self._reads_left[index]:
                self.live_states[index] = state
                for fold in self._folds_of[index]:
                    self._advance(fold)
            self.most_live = max(self.most_live, self.live)

    def leave_out(self, order: Iterable[int]) -> None:
        for index in order:
            self._mergers.pop(index, None)
            for read in inputs(self.graph.nodes[index]):
                if read in self.live_states:
                    self._read(read)

    @property
    def live(self) -> int:
        """Number of states in memory. A group that is being merged counts as two."""
        return len(self.live_states) + 2 * len(self._mergers)

    def _compute(self, index: int) -> Tensor:
        match self.graph.nodes[index]:
            case Apply(layer, state, variant) as node:
                if variant.change is not None:
                    return self.change(node, self._read(state))
                self.evaluated += 1
                return self.apply(layer, self._read(state), variant.sublayer, variant.source)
            case MergeNode(merge=merge):
                return self._mergers.pop(index).result(merge)
            case Root():
                return self.root

    def _advance(self, fold: _PartialMerge) -> None:
        branches = fold.node.branches
        while fold.done < len(branches) and branches[fold.done] in self.live_states:
            if fold.merger is None:
                fold.merger = self._mergers[fold.index] = Merger(self._read(fold.node.base))
            fold.merger.add(self._read(branches[fold.done]))
            fold.done += 1

    def _read(self, index: int) -> Tensor:
        state = self.live_states[index]
        self._reads_left[index] -= 1
        if not self._reads_left[index]:
            del self.live_states[index]
        return state


@dataclass
class _PartialMerge:
    index: int
    node: MergeNode
    done: int = 0
    merger: Merger | None = None


def most_live(graph: Graph, order: Iterable[int] | None = None) -> int:
    """Return the peak number of states in memory if the nodes are computed in this order."""
    walk = GraphExecutor(
        graph, lambda layer, state, part, source: state, torch.empty(0, device="cpu"), change=lambda node, state: state
    )
    for _ in walk.walk(schedule(graph) if order is None else order):
        pass
    return walk.most_live
