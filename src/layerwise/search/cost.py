"""The cost of a round before it runs: layer evaluations and heads of plans that share prefixes.

The parent's states are cached (`layerwise.search.evaluator`), so a plan costs only its stages after the shared
prefix, and equal continuations are computed once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.plan.plan import Stage
from layerwise.search.moves import stages
from layerwise.stack.executors.graph import Graph, build


@dataclass(frozen=True, slots=True)
class Forks:
    """The plans of a round by where they leave the parent: after how many of its stages, and how they go on.

    `at[n]` is the graph of what follows the first n stages; `ends[n]` are the plans that stop there.
    """

    at: Mapping[int, tuple[Graph, Mapping[Plan, Plan]]]
    ends: Mapping[int, Plan]

    @classmethod
    def of(cls, plans: Sequence[Plan], parent: Sequence[Stage]) -> Forks:
        """Sort plans by their common beginning with the stages of the parent.

        >>> forks = Forks.of([Plan.parse("0 2"), Plan.parse("0 3"), Plan.parse("0 1")], stages(Plan.parse("0-2")))
        >>> {after: graph.evaluations for after, (graph, _) in forks.at.items()}, forks.ends
        ({1: 2}, {2: Plan('0 1')})
        """
        tails: dict[int, dict[Plan, Plan]] = defaultdict(dict)
        ends: dict[int, Plan] = {}
        for plan in plans:
            own = stages(plan)
            common = common_beginning(own, parent)
            if common == len(own):
                ends[common] = plan
            else:
                tails[common][Plan(own[common:])] = plan
        return cls({after: (build(after_plans), after_plans) for after, after_plans in tails.items()}, ends)

    @property
    def deepest(self) -> int:
        return max((*self.at, *self.ends), default=0)

    @property
    def evaluations(self) -> int:
        return sum(graph.evaluations for graph, _ in self.at.values())

    @property
    def heads(self) -> int:
        return len(self.ends) + sum(graph.heads for graph, _ in self.at.values())


@dataclass(slots=True)
class Spent:
    """Layer evaluations and heads, times their tokens; `naive` is the cost of every plan alone on all of the text."""

    layer_tokens: int = 0
    head_tokens: int = 0
    naive: int = 0
    layer_seconds: float = 0.0
    head_seconds: float = 0.0

    def plus(self, other: Spent) -> Spent:
        return Spent(self.layer_tokens + other.layer_tokens, self.head_tokens + other.head_tokens)


class WorstCase:
    """An evaluator that computes nothing and makes up losses for which a search costs most.

    The candidates that leave their parent earliest win, and every round improves until the rounds are used up.
    """

    def __init__(self, tokens: Sequence[Numbers], batch_tokens: Sequence[int]) -> None:
        self.tokens = tokens
        self.batch_tokens = batch_tokens
        self.spent = Spent()
        self._known: set[tuple[Plan, int]] = set()
        self._held: dict[int, tuple[Stage, ...]] = {}

    def evaluate(self, plans: Sequence[Plan], rung: int, parent: Plan) -> Numbers:
        missing = [plan for plan in dict.fromkeys(plans) if (plan, rung) not in self._known]
        way, held = stages(parent), self._held.get(rung, ())
        if missing:
            forks = Forks.of(missing, way)
            kept = common_beginning(held, way)
            added = max(0, forks.deepest - kept)
            self._held[rung] = way[: max(kept, forks.deepest)]
            self.spent.layer_tokens += (forks.evaluations + added) * self.batch_tokens[rung]
            self.spent.head_tokens += forks.heads * self.batch_tokens[rung]
            self._known.update((plan, rung) for plan in missing)
        losses = [common_beginning(stages(plan), way) - len(self._known) for plan in plans]
        return np.outer(losses, self.tokens[rung]).astype(np.float64)


def common_beginning(first: Sequence[Stage], second: Sequence[Stage]) -> int:
    length = min(len(first), len(second))
    return next((index for index in range(length) if first[index] != second[index]), length)
