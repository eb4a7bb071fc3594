"""Greedy descent with a beam, then exchanges: the default search.

From the original model, the edits that increase the loss least per saving are made repeatedly, with all candidates
re-evaluated at each step (SLEB, Song et al. 2024, arXiv 2402.09025). The best `width` plans continue (beam search),
since the best set of k + 1 need not contain the best set of k. At the limit, layers are
exchanged, or taken from another model, until nothing helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from layerwise.errors import MeasureError
from layerwise.plan import Plan
from layerwise.search.moves import LONGEST_REPEAT, Move, cheaper, neighbours
from layerwise.search.rungs import Evaluator, Round, RungSettings, contest

Price = Callable[[Plan], float]

WIDTH = 3

ROUNDS = 8
"""Rounds of exchanges, at most."""


@dataclass(frozen=True, slots=True)
class Space:
    """The search space: the edits (`moves`) of a model of `depth` layers, the cost of a plan, and its limit.

    `sources` names other models that may provide layers; at most `longest` layers run twice.
    """

    depth: int
    moves: tuple[Move, ...]
    price: Price
    limit: float
    sources: tuple[str, ...] = ()
    longest: int = LONGEST_REPEAT

    @property
    def whole(self) -> Plan:
        return Plan.identity(self.depth)

    def allows(self, plan: Plan) -> bool:
        return self.price(plan) <= self.limit * (1 + 1e-9)


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
    """Yield the rounds from the original model to the limit (see `winners`); raise `MeasureError` if no move does."""
    settings = replace(settings or RungSettings(), fewest=width)
    beam: tuple[Plan, ...] = (space.whole,)
    while not all(space.allows(plan) for plan in beam):
        candidates, base = [plan for plan in beam if space.allows(plan)], space.price(space.whole)
        for plan in beam:
            smaller = [] if space.allows(plan) else cheaper(plan, space.moves)
            candidates += [each for each in smaller if space.price(each) < space.price(plan)]
        if not candidates:
            raise MeasureError(
                f"of {beam[0]} nothing can be left out by {', '.join(space.moves)}, and it costs "
                f"{space.price(beam[0]):g}, above the limit of {space.limit:g}: give a larger budget, or more "
                "moves"
            )
        saved = {each: 1 / (base - space.price(each)) for each in candidates}
        ended = contest(evaluator, candidates, beam[0], base=space.whole, scale=saved, settings=settings)
        yield SearchStep("drop", ended)
        beam = best_of(ended, width)
    yield from exchanges(evaluator, space, beam, width=width, settings=settings)


def exchanges(
    evaluator: Evaluator,
    space: Space,
    beam: Sequence[Plan],
    *,
    width: int = WIDTH,
    settings: RungSettings | None = None,
    around: Callable[[Plan], Iterable[Plan]] = lambda plan: (),
) -> Iterator[SearchStep]:
    settings = replace(settings or RungSettings(), fewest=width)
    tried: set[Plan] = set()
    best = tuple(beam)
    for _ in range(ROUNDS):
        untried = [plan for plan in best if plan not in tried]
        tried.update(untried)
        near = [
            each
            for plan in untried
            for each in neighbours(plan, space.moves, space.depth, space.sources, space.longest)
        ]
        near += [each for plan in untried for each in around(plan)]
        candidates = list(dict.fromkeys([*best, *(each for each in near if space.allows(each))]))
        if len(candidates) == len(best):
            return
        ended = contest(evaluator, candidates, best[0], kept=best, settings=settings)
        yield SearchStep("exchange", ended)
        best = best_of(ended, width)


def best_of(ended: Round, width: int) -> tuple[Plan, ...]:
    return (*ended.losses, *ended.runners_up)[:width]


def winners(steps: Iterable[SearchStep], space: Space) -> dict[Plan, float]:
    read = {plan: loss for step in steps for plan, loss in step.round.losses.items() if space.allows(plan)}
    return dict(sorted(read.items(), key=lambda item: item[1]))
