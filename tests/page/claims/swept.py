"""Simulated sweeps: planted costs of real plans, put through the real measure, on documents
with log-normal lengths, a gamma factor of the cost that all plans share, and noise per plan."""

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

from layerwise.measure.stats.grid import Grid
from layerwise.plan import Plan
from layerwise.results.rows import PlanRecord, Score
from layerwise.studies.sweep.contrasts import compute_rows
from layerwise.studies.sweep.strategies import Strategies
from page.claims.truths import Truth
from page.synthetic import plan_records

DEPTH = 8  # windows of 7, 5 and 3 layers
WIDEST = 7
RESAMPLES = 400

Cost = Callable[[PlanRecord], float]
"""Nats per token, before the draw of a random order."""


def simulate_sweep(
    claims: Iterable[str],
    cost: Cost,
    *,
    families: tuple[str, ...] = ("painters",),
    depth: int = DEPTH,
    documents: int = 24,
    shape: float = 2.0,
    noise: float = 0.1,
    draws: float = 0.1,
    resamples: int = RESAMPLES,
) -> Truth:
    """`shape` is of the gamma factor, `noise` in nats per token, `draws` the relative spread of random orders."""
    plans, records = list_plans(families, depth)
    expected = np.array([cost(records[plan]) if plan in records else 0.0 for plan in plans])
    drawn = np.array([plan in records and records[plan].draw is not None for plan in plans])
    cells = tuple(("text", f"{number:03}", 0) for number in range(documents))
    every = [record for record in plan_records(depth, families) if record.affected > 1]

    def truth(run: int) -> list[Score]:
        draw = np.random.default_rng(run)
        own = expected * np.where(drawn, 1 + draws * draw.standard_normal(len(plans)), 1.0)
        tokens = np.round(draw.lognormal(4.0, 0.5, documents)) + 2
        factor = draw.gamma(shape, 1 / shape, documents)
        error = noise * draw.standard_normal((len(plans), documents)) * (expected != 0)[:, None]
        nll = (1.2 + own[:, None] * factor + error) * tokens
        grid = Grid(plans, cells, nll, np.zeros_like(nll), tokens)
        strategies = Strategies.from_grid(grid, every, str(Plan.identity(depth)), seed=run, resamples=resamples)
        return compute_rows(strategies, depth, claims)

    return truth


def cost_by_strategy(**harm: float) -> Cost:
    """Narrow windows cost little, as one in six random orders of three layers is the trained one."""
    return lambda record: harm.get(record.strategy, 0.0) * (record.affected / WIDEST) ** 4


@cache
def list_plans(families: tuple[str, ...], depth: int) -> tuple[tuple[str, ...], dict[str, PlanRecord]]:
    whole = str(Plan.identity(depth))
    records = {record.plan: record for record in plan_records(depth, families)[::-1] if record.plan != whole}
    return tuple(sorted({*records, whole})), records
