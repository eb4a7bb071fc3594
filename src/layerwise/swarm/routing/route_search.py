"""Searches for the cheapest owner of every visit, on arrays: what `layerwise.swarm.routing.route` is made of.

Each takes what a hop to a node costs (nodes,), what a visit costs there (visits, nodes) and what leaving it out costs
(visits,), infinite where that cannot be. It returns the node that runs each visit, by number, or `OMITTED`. Every
visit has a finite cost somewhere.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

OMITTED = -1
"""The number of the node that runs a visit which nobody runs."""

Costs: TypeAlias = NDArray[np.float64]


def in_order(hops: Costs, runs: Costs, omissions: Costs) -> list[int]:
    """The owners of visits in their order: a dynamic programme over (visit, node that ran last).

    A visit left out does not end the leg that is under way.
    """
    start = len(hops)  # one more node, which is where no node has run yet
    value = np.append(np.full(start, np.inf), 0.0)
    entering = np.append(hops, np.inf)
    choices: list[tuple[NDArray[np.intp], NDArray[np.bool_]]] = []
    for run, omission in zip(np.pad(runs, ((0, 0), (0, 1)), constant_values=np.inf), omissions, strict=True):
        best = int(np.argmin(value))
        stays = value <= value[best] + entering
        entered = np.where(stays, value, value[best] + entering) + run
        left_out = value + omission < entered
        choices.append((np.where(left_out | stays, np.arange(start + 1), best), left_out))
        value = np.where(left_out, value + omission, entered)
    last = int(np.argmin(value))
    owners: list[int] = []
    for before, left_out in reversed(choices):
        owners.append(OMITTED if left_out[last] else last)
        last = int(before[last])
    return owners[::-1]


def over_subsets(hops: Costs, runs: Costs, omissions: Costs) -> list[int]:
    """The owners of visits in any order: a dynamic programme over the subsets of visits covered so far.

    Since a node needs no second hop where the order is free, nodes are added one after another, and each covers some
    of what those before it left. This takes time in proportion to 2^visits times the layers held.
    """
    count = len(omissions)
    value = np.where(np.arange(1 << count) == 0, 0.0, np.inf)
    owners = np.full((1 << count, count), OMITTED)
    _add(value, owners, omissions, OMITTED)
    for node, hop in enumerate(hops):
        entered, entered_owners = value + hop, owners.copy()
        _add(entered, entered_owners, runs[:, node], node)
        better = entered < value
        value[better], owners[better] = entered[better], entered_owners[better]
    return [int(owner) for owner in owners[-1]]


def _add(value: Costs, owners: NDArray[np.int64], runs: Costs, node: int) -> None:
    """Change the least costs and the owners by subset to what they are when `node` may run any of the visits too."""
    subsets = np.arange(len(value))
    for visit in np.flatnonzero(np.isfinite(runs)):
        without = subsets[subsets & (1 << visit) == 0]
        better = without[value[without] + runs[visit] < value[without | (1 << visit)]]
        covered = better | (1 << visit)
        value[covered], owners[covered] = value[better] + runs[visit], owners[better]
        owners[covered, visit] = node


def greedy(hops: Costs, runs: Costs, omissions: Costs) -> list[int]:
    """The owners of visits in any order, by a rule: take the node, or the omission, with the least cost per visit.

    A node's cost per visit counts its hop and those of the visits left, cheapest first, that make the ratio least; a
    node once taken is entered already. At the end every visit moves to the cheapest of the nodes taken.
    """
    left = np.ones(len(omissions), dtype=bool)
    entering = hops.copy()
    nodes: set[int] = set()
    while left.any():
        rows = np.flatnonzero(left)
        rates = np.cumsum(np.sort(runs[rows], axis=0), axis=0) + entering
        rates /= np.arange(1, len(rows) + 1)[:, None]
        omission = int(rows[np.argmin(omissions[rows])])
        if not rates.size or rates.min() > omissions[omission]:
            left[omission] = False
            continue
        several, node = (int(each) for each in np.unravel_index(int(np.argmin(rates)), rates.shape))
        left[rows[np.argsort(runs[rows, node], kind="stable")[: several + 1]]] = False
        entering[node] = 0.0
        nodes.add(node)
    known = sorted(nodes)
    best = np.where(np.isin(np.arange(len(hops)), known), runs, np.inf)
    best = np.pad(best, ((0, 0), (0, 1)), constant_values=np.inf)  # a node that runs nothing, where none is taken
    is_run = best.min(axis=1) <= omissions
    return [int(owner) for owner in np.where(is_run, best.argmin(axis=1), OMITTED)]
