"""Worlds in which it is known whether the prompt determines the plan."""

from __future__ import annotations

import numpy as np

from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.vocabulary import MILLISECONDS, ROUTE_TIME, ROUTER
from layerwise.search.routing.router import RoutingTable

TIMES = [
    Score(ROUTE_TIME, MILLISECONDS, 0.5, 0.4, 0.6, arm=ROUTER),
    Score(ROUTE_TIME, "layer_ms", 1.0),
    Score(ROUTE_TIME, "layers", 0.5, arm=ROUTER),
    Score(ROUTE_TIME, "tokens", 9.0, arm=ROUTER),
]
"""What `router_time` measures where half a layer's time chooses a plan: a busy machine decides nothing."""

PLANS = tuple(map(Plan.parse, ("0-3 8-11", "0-2 6-11", "0 1 3-11", "0-2 4-11", "0-11")))
RIGHT = (0.4, 0.5, 0.7, 0.7, 0.75)
"""How often each plan is right, whatever the prompt."""


def world(questions: int, seed: int, *, effect: float = 0.0, right: tuple[float, ...] = RIGHT) -> RoutingTable:
    """Outcomes of `PLANS`, drawn: some prompts are hard for all plans alike, which the features show.

    `effect` are the log-odds by which one feature, and one feature alone, makes the third plan better and the fourth
    worse, or the other way round. Without an effect the prompt says nothing about which plan to choose.
    """
    chance = np.random.default_rng(seed)
    features = chance.normal(size=(questions, 6))
    odds = np.log(np.array(right) / (1 - np.array(right))) + 0.8 * features[:, :1]
    odds[:, 2:4] += effect * np.sign(features[:, 1:2]) * np.array([1.0, -1.0])
    scores = (chance.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(np.float64)
    tasks = np.array(["a", "b"])[chance.integers(0, 2, questions)]
    return RoutingTable(PLANS, tasks, scores, features, 2)
