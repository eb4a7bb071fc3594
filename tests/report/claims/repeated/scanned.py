"""Sweeps that never happened: losses of real plans on documents, from planted effects, put through the real measure.

Documents differ in length (log-normal) and in difficulty (a gamma factor that all effects on a document share), and
every plan has heavy-tailed noise of its own on each document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from layerwise.measure.contrasts.repeated import repeated_contrasts
from layerwise.plan import Plan, families
from layerwise.results.rows import Loss, PlanRecord, Score
from report.claims.truths import Truth

DEPTH = 12
WHOLE = str(Plan.identity(DEPTH))
REMOVED, PLAIN, DAMPED = (
    tuple(str(member.plan) for member in family(DEPTH))
    for family in (families.leave_one_out, families.repeat_blocks, families.damped_repeats)
)

Effects = Mapping[str, float]
Drawn = Callable[[np.random.Generator], Effects]


def losses(effects: Effects, run: int, documents: int, noise: float) -> list[Loss]:
    """What every plan of `effects`, and the model as trained, loses on each document."""
    draw = np.random.default_rng([run, documents])
    tokens = np.round(draw.lognormal(4.0, 0.5, documents)) + 2
    factor = draw.gamma(4.0, 0.25, documents)
    own = noise * draw.standard_t(5, (len(effects), documents)) / np.sqrt(5 / 3)
    cost = np.array(list(effects.values()))[:, None] * factor + own
    nll = np.vstack([3.0 * tokens, (3.0 + cost) * tokens])
    return [
        Loss(plan, "text", f"{number:03}", 0, float(nll[row, number]), int(tokens[number]), 0)
        for row, plan in enumerate((WHOLE, *effects))
        for number in range(documents)
    ]


def scanned(
    effects: Effects | Drawn, *, documents: int = 48, noise: float = 0.05, records: Sequence[PlanRecord] = ()
) -> Truth:
    """The contrasts of a sweep whose plans have these effects in nats per token; some are drawn anew in every run."""

    def truth(run: int) -> list[Score]:
        own = effects(np.random.default_rng([run, 5])) if callable(effects) else effects
        return repeated_contrasts(losses(own, run, documents, noise), records, DEPTH, seed=run)

    return truth


def removed(first: float, second: float, **named: float) -> dict[str, float]:
    """What leaving out a layer of each half costs, and the layers that are named by their numbers."""
    costs = [first] * (DEPTH // 2) + [second] * (DEPTH - DEPTH // 2)
    for layer, cost in named.items():
        costs[int(layer.removeprefix("layer"))] = cost
    return dict(zip(REMOVED, costs, strict=True))
