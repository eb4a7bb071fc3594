"""What choosing a plan takes: milliseconds of the router, and in layers of a pass over the same prompt.

The router is timed whole: tokens in, plan out, with the layers that it runs to read its features. Generation runs those
again under the plan, so nothing of it is got back there, and all of it is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from layerwise.measure.cost.pass_time import PassClock, Setting
from layerwise.measure.stats.estimate import median_interval
from layerwise.search.routing.features import prompt_features
from layerwise.search.routing.router import PlanRouter
from layerwise.search.timing import measured
from layerwise.stack import Stack

PROMPTS = 40
"""Prompts of which each is routed once, alone; the first few warm up."""

_WARM_UP = 5


@dataclass(frozen=True, slots=True)
class RouterTime:
    """Medians in milliseconds: of choosing a plan for one prompt (`low` to `high`), and of one layer on such a prompt.

    `tokens` is the median length of the prompts.
    """

    router: float
    low: float
    high: float
    layer: float
    tokens: int

    @property
    def layers(self) -> float:
        """The router's time in layers."""
        return self.router / self.layer


def router_time(stack: Stack, router: PlanRouter, prompts: Sequence[Sequence[int]]) -> RouterTime:
    """Time a router on some of the prompts, one at a time, and a layer on a prompt of their median length."""
    some = [prompts[number % len(prompts)] for number in range(PROMPTS + _WARM_UP)]
    clock = PassClock(stack.device)
    seconds = [
        clock.seconds(lambda: router.choices(prompt_features(stack, [prompt], router.prefix)))  # noqa: B023
        for prompt in some
    ]
    times = [1000 * each for each in seconds[_WARM_UP:]]
    tokens = max(2, int(median(map(len, prompts))))
    table, _ = measured(stack, Setting("prefill", 1, tokens))
    layer = median(table.pieces[number, None] for number in range(stack.depth))
    return RouterTime(median(times), *median_interval(times), layer, tokens)
