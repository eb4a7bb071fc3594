"""The contrasts that decide claims which are often repeated about layers, from the losses of a sweep alone.

Effects are in nats per token, a plan less the model as trained; layers are scaled from 30 to the depth. Of every claim
there are rows where all plans that it is about were measured:

    core           see `layerwise.measure.contrasts.layers`, from the plans of `leave_one_out`
    superfluous    delta_nll of the `layer` 14 and 17, at 97.5 % each; `typical`, the median of the others
    second_half    `second` and `first`, the median effect of leaving out a layer of that half
    some_repeat    every run of layers run twice (`repeat_blocks`), see below
    damping        the same of `damped_repeats`, and `less`: 2 (p - d) / (|p| + |d|), where p and d are the mean costs
                   of plain repeats and of damped repeats of the same runs
    permuted       `random`, `reverse` and `skip`, what they cost at the published window of half the depth at most,
                   random orders over documents and draws; `layers`, its size

Of hundreds of repeats the best is flattered by the text that chose it. So half of the documents chooses, each repeat
with a gain at one-sided 5 % there, and on the other half all that were chosen are tested together at 5 % (Holm;
`layerwise.measure.stats.verdicts`). A scan in which nothing gains then shows a gain in 5 of 100 cases at most:

    confirmed      how many repeats were chosen and confirmed
    best           the effect, on the half that did not choose, of the `plan` that gains most on the half that did, of
                   the confirmed ones if there are any; the mde is a gain that 80 of 100 runs choose and confirm
    least          the effect on all of the text of the plan whose interval reaches lowest. That all of them exclude a
                   gain needs no correction: where one has it, its own interval has to be wrong
    plans          how many repeats there are
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from layerwise.measure.contrasts.contrast import CONTRAST, Part, Resampled, first
from layerwise.measure.contrasts.layers import REACHED, core, published_layers
from layerwise.measure.contrasts.strategies import Costs, Strategies, relative
from layerwise.measure.stats.estimate import Estimate
from layerwise.measure.stats.grid import FEWEST_UNITS, Grid, arrange
from layerwise.measure.stats.statistics import Numbers
from layerwise.measure.stats.verdicts import HarmTest, VerdictCriterion, whole_effects
from layerwise.plan import Plan, families
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import DELTA

SUPERFLUOUS, SECOND_HALF, SOME_REPEAT, DAMPING, PERMUTED = (
    "superfluous",
    "second_half",
    "some_repeat",
    "damping",
    "permuted",
)
CLAIMS = frozenset({SUPERFLUOUS, SECOND_HALF, SOME_REPEAT, DAMPING, PERMUTED})
"""The claims whose rows are of this module alone."""

PUBLISHED_SUPERFLUOUS = (14, 17)
FEWEST_LAYERS = 8
"""With fewer, a half of the layers or what is left beside a core is no sample to take a median of."""

CRITERION = VerdictCriterion()
ORDERS = ("random", "reverse", "skip")


def repeated_contrasts(
    losses: Iterable[Loss], records: Iterable[PlanRecord], depth: int, *, seed: int = 0
) -> list[Score]:
    """The rows of every claim that the plans were run for, see the module; none on fewer than 8 documents or windows.

    `losses` are of a model of `depth` layers, with those of the model as trained; raises `MeasureError` as
    `layerwise.measure.stats.grid.arrange` does.
    """
    if depth < FEWEST_LAYERS:
        return []
    measured, whole, swept = list(losses), str(Plan.identity(depth)), list(records)
    plans = {row.plan for row in measured}
    removed, plain, damped = (
        [str(member.plan) for member in family(depth)]
        for family in (families.leave_one_out, families.repeat_blocks, families.damped_repeats)
    )
    has = [plans.issuperset(family) for family in (removed, plain, damped)]
    reordered = any(record.family == "painters" for record in swept)
    if whole not in plans or not (any(has) or reordered):
        return []
    grid = arrange(measured)
    if grid.by_unit(grid.tokens).size < FEWEST_UNITS:
        return []
    rows: list[Score] = []
    if has[0]:
        rows += single_layers(measured, grid, whole, removed, seed)
    if has[1]:
        rows += gains(grid, whole, SOME_REPEAT, plain, seed)
    if has[1] and has[2]:
        rows += gains(grid, whole, DAMPING, damped, seed)
        rows.append(damping(grid, whole, plain, damped, seed))
    return rows + permuted(Strategies.of(grid, swept, whole, seed=seed), depth)


def single_layers(losses: Sequence[Loss], grid: Grid, whole: str, removed: Sequence[str], seed: int) -> Iterator[Score]:
    """What leaving out each layer costs: at the core, at the two that are called superfluous, in each half."""
    depth = len(removed)
    yield from core(losses, whole, dict(enumerate(removed)), {}, {}, margin=CRITERION.margin, seed=seed)
    drawn = Resampled.of([Part.of_grid(grid, whole, removed)], seed=seed)
    named = published_layers(PUBLISHED_SUPERFLUOUS, depth)
    for layer in named:
        of_layer = partial(_median, [layer])
        level = 1 - CRITERION.alpha / len(named)
        yield drawn.row(SUPERFLUOUS, DELTA, of_layer, level=level, layer=layer)
    others = [layer for layer in range(depth) if layer not in named]
    halves = {"first": range(depth // 2), "second": range(depth // 2, depth)}
    for claim, metric, layers in (
        (SUPERFLUOUS, "typical", others),
        *((SECOND_HALF, name, half) for name, half in halves.items()),
    ):
        yield drawn.row(claim, metric, partial(_median, layers), power=REACHED)


def _median(layers: Sequence[int], effects: Numbers) -> Numbers:
    return np.asarray(np.median(effects[..., list(layers)], axis=-1))


def gains(grid: Grid, whole: str, claim: str, plans: Sequence[str], seed: int) -> Iterator[Score]:
    """Whether any of `plans` gains, each chosen on one half of the text and judged on the other, see the module."""
    keys = dict(enumerate(plans))
    test = HarmTest.on(grid, whole, keys, CRITERION, seed)
    if not test.first:
        return
    effects = whole_effects(grid, whole, keys, 1 - CRITERION.alpha)
    size: dict[str, Any] = {"claim": claim, "documents": grid.documents(), "tokens": int(grid.tokens.sum())}

    def row(metric: str, plan: int, effect: Estimate[float], mde: float | None = None) -> Score:
        return Score(CONTRAST, metric, effect.value, effect.low, effect.high, plan=plans[plan], mde=mde, **size)

    best = min(test.harmful or keys, key=lambda plan: test.first[plan].value)
    least = min(keys, key=lambda plan: effects[plan].low)
    yield row("best", best, test.second[best], test.detectable(best, CRITERION.alpha))
    yield row("least", least, effects[least])
    yield Score(CONTRAST, "confirmed", float(len(test.harmful)), **size)
    yield Score(CONTRAST, "plans", float(len(plans)), **size)


def damping(grid: Grid, whole: str, plain: Sequence[str], damped: Sequence[str], seed: int) -> Score:
    """What damping spares a repeat, of the mean of both costs, over all runs of layers."""
    part = Part.of_grid(grid, whole, [*plain, *damped])
    means = np.stack([half.mean(axis=0) for half in np.split(part.numerators, 2)])
    both = Part(means, part.denominators, part.documents, part.tokens, part.strata)
    return Resampled.of([both], seed=seed).row(
        DAMPING, "less", lambda effects: relative(first(effects), effects[..., 1])
    )


def permuted(strategies: Strategies, depth: int) -> list[Score]:
    """What other orders of the middle half cost, and its absence; none where the window was not run."""
    windows = strategies.windows(*(("painters", name) for name in ORDERS))
    half = [size for size in windows if 2 * size <= depth]
    if not half:
        return []
    rows = [strategies.row(PERMUTED, name, partial(_cost, name, half[-1:])) for name in ORDERS]
    return [*rows, Score(CONTRAST, "layers", float(half[-1]), claim=PERMUTED)]


def _cost(strategy: str, windows: Sequence[int], costs: Costs) -> Numbers:
    return np.asarray(costs(("painters", strategy), windows)[..., 0])
