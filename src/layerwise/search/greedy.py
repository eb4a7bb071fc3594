"""Greedy search with a beam, followed by exchanges: the default search.

From the original model, each step makes the edit that increases the loss least per saved cost, and re-evaluates all
candidates (SLEB, Song et al. 2024, arXiv 2402.09025). The best `width` plans are kept (beam search), because the best
set of k + 1 layers need not contain the best set of k layers. When the limit is reached, layers are exchanged, or
replaced by those of another model, until no exchange lowers the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from layerwise.errors import MeasureError
from layerwise.plan import Plan
from layerwise.search.edits import MAX_REPEAT, Edit, list_cheaper, list_neighbors
from layerwise.search.rungs import Evaluator, Round, RungSettings, run_round

Cost = Callable[[Plan], float]

WIDTH = 3

MAX_ROUNDS = 8
"""Maximum number of exchange rounds."""


@dataclass(frozen=True, slots=True)
class Space:
    """Search space: the allowed edits of a model with `depth` layers, the cost of a plan, and its limit.

    `sources` names other models whose layers may be used. `max_repeat` limits how many consecutive layers the edit
    `repeat` runs twice.
    """

    depth: int
    edits: tuple[Edit, ...]
    cost: Cost
    limit: float
    sources: tuple[str, ...] = ()
    max_repeat: int = MAX_REPEAT

    @property
    def original(self) -> Plan:
        return Plan.identity(self.depth)

    def allows(self, plan: Plan) -> bool:
        return self.cost(plan) <= self.limit * (1 + 1e-9)


@dataclass(frozen=True, slots=True)
class SearchStep:
    kind: str
    round: Round


def greedy(
    evaluator: Evaluator,
    space: Space,
    *,
    width: int = WIDTH,
    settings: RungSettings | None = None,
) -> Iterator[SearchStep]:
    """Yield the rounds that lead from the original model to the limit, then the rounds of exchanges.

    Raises:
        MeasureError: If the limit cannot be reached with the edits.
    """
    settings = replace(settings or RungSettings(), min_survivors=width)
    beam: tuple[Plan, ...] = (space.original,)
    while not all(space.allows(plan) for plan in beam):
        candidates, base = [plan for plan in beam if space.allows(plan)], space.cost(space.original)
        for plan in beam:
            smaller = [] if space.allows(plan) else list_cheaper(plan, space.edits)
            candidates += [each for each in smaller if space.cost(each) < space.cost(plan)]
        if not candidates:
            raise MeasureError(
                f"--budget must be at least {space.cost(beam[0]):g}, the cost of the plan {beam[0]}, which the edits "
                f"{', '.join(space.edits)} cannot make cheaper, got {space.limit:g}. Pass a larger budget or more "
                "edits."
            )
        saved = {each: 1 / (base - space.cost(each)) for each in candidates}
        result = run_round(evaluator, candidates, beam[0], base=space.original, scale=saved, settings=settings)
        yield SearchStep("drop", result)
        beam = select_beam(result, width)
    yield from exchange_layers(evaluator, space, beam, width=width, settings=settings)


def exchange_layers(
    evaluator: Evaluator,
    space: Space,
    beam: Sequence[Plan],
    *,
    width: int = WIDTH,
    settings: RungSettings | None = None,
    around: Callable[[Plan], Iterable[Plan]] = lambda plan: (),
) -> Iterator[SearchStep]:
    settings = replace(settings or RungSettings(), min_survivors=width)
    tried: set[Plan] = set()
    best = tuple(beam)
    for _ in range(MAX_ROUNDS):
        untried = [plan for plan in best if plan not in tried]
        tried.update(untried)
        near = [
            each
            for plan in untried
            for each in list_neighbors(plan, space.edits, space.depth, space.sources, space.max_repeat)
        ]
        near += [each for plan in untried for each in around(plan)]
        candidates = list(dict.fromkeys([*best, *(each for each in near if space.allows(each))]))
        if len(candidates) == len(best):
            return
        result = run_round(evaluator, candidates, best[0], kept=best, settings=settings)
        yield SearchStep("exchange", result)
        best = select_beam(result, width)


def select_beam(result: Round, width: int) -> tuple[Plan, ...]:
    return (*result.losses, *result.runners_up)[:width]


def rank_plans(steps: Iterable[SearchStep], space: Space) -> dict[Plan, float]:
    losses = {plan: loss for step in steps for plan, loss in step.round.losses.items() if space.allows(plan)}
    return dict(sorted(losses.items(), key=lambda item: item[1]))
