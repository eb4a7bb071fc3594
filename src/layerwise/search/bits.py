"""Choose the quantization of each layer within a budget of bytes, and the allocations that need no search.

Each choice of a layer (as it is, each GGUF type that saves bytes, skipped with the edit `drop`) is measured alone. As
if loss increases added up, the change with the least increase per byte is made until the plan is within the limit
(multiple-choice knapsack; Sinha and Zoltners 1979, Operations Research 27(3)); exchanges improve the result.
`rule_plans` and random allocations need no search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress, product
from operator import not_
from random import Random
from types import MappingProxyType

from layerwise.errors import MeasureError
from layerwise.plan import Plan
from layerwise.plan.families import INTEGER_TYPES
from layerwise.plan.plan import Stage, Visit
from layerwise.results.rows import Score
from layerwise.search.greedy import WIDTH, SearchStep, Space, best_of, exchanges
from layerwise.search.moves import BITS, stages
from layerwise.search.one_shot import block_influence
from layerwise.search.rungs import Evaluator, RungSettings, contest, mean_losses

UNIFORM = "uniform"
FIRST_AND_LAST = "first_and_last"
IMATRIX = "imatrix"

FEWEST_BITS = INTEGER_TYPES[0]

EXCHANGES = 48
"""Exchanges of bits that are measured around a plan: those that promise most."""

Choice = Visit | None
"""How a layer runs; `None` where it is left out."""


@dataclass(frozen=True)
class Allocations:
    """The choices of every layer of a `space`, with their bytes; `rises` says what each loses by itself."""

    space: Space
    rises: Mapping[tuple[int, Choice], float]

    @classmethod
    def measured(cls, evaluator: Evaluator, space: Space) -> Allocations:
        plans = {
            (layer, choice): Plan(with_choice(stages(space.whole), layer, choice))
            for layer in range(space.depth)
            for choice in choices(space, layer)
        }
        losses = mean_losses(evaluator, list(dict.fromkeys([space.whole, *plans.values()])), space.whole)
        return cls(space, {key: losses[plan] - losses[space.whole] for key, plan in plans.items()})

    @cached_property
    def bytes(self) -> Mapping[tuple[int, Choice], float]:
        whole = self.space.price(self.space.whole)
        return {
            (layer, choice): self.space.price(Plan(with_choice(stages(self.space.whole), layer, choice))) - whole
            for layer, choice in self.rises
        }

    def of(self, layer: int) -> list[Choice]:
        return [choice for number, choice in self.rises if number == layer]

    def cheapest(self) -> Plan:
        """Return the plan within the limit that loses least if the rises add up; else raise `MeasureError`."""
        space, now = self.space, dict[int, Choice]((layer, Visit(layer)) for layer in range(self.space.depth))
        while not space.allows(plan := _plan(now.values())):
            changes = [
                ((self.rises[layer, choice] - self.rises[layer, own]) / saved, layer, number, choice)
                for layer, own in now.items()
                for number, choice in enumerate(self.of(layer))
                if (saved := self.bytes[layer, own] - self.bytes[layer, choice]) > 0
                and (choice is not None or sum(each is not None for each in now.values()) > 1)
            ]
            if not changes:
                raise MeasureError(
                    f"with every layer at its fewest bits the model costs {space.price(plan):,.0f} bytes, above the "
                    f"limit of {space.limit:,.0f}: give a larger budget, or --moves bits,drop"
                )
            _, layer, _, choice = min(changes, key=lambda change: change[:3])
            now[layer] = choice
        # The last change may have saved more than was needed, and a layer that goes leaves room for others.
        while (better := self._improved(now)) is not None:
            now = better
        return _plan(now.values())

    def _improved(self, now: Mapping[int, Choice]) -> dict[int, Choice] | None:
        for layer, own in sorted(now.items(), key=lambda item: -self.rises[item]):
            for choice in sorted(self.of(layer), key=lambda each: self.rises[layer, each]):
                changed = {**now, layer: choice}
                is_better = self.rises[layer, choice] < self.rises[layer, own] and any(changed.values())
                if is_better and self.space.allows(_plan(changed.values())):
                    return changed
        return None

    def exchanges(self, plan: Plan) -> list[Plan]:
        own = {visit.layer: visit for visit in stages(plan) if isinstance(visit, Visit)}
        changes = [
            (rise - self.rises[layer, own.get(layer)], layer, choice)
            for (layer, choice), rise in self.rises.items()
            if choice != own.get(layer) and (layer, own.get(layer)) in self.rises
        ]
        saves = [self.bytes[layer, choice] <= self.bytes[layer, own.get(layer)] for _, layer, choice in changes]
        cheaper, dearer = list(compress(changes, saves)), list(compress(changes, map(not_, saves)))
        made: list[tuple[tuple[float, int, Choice], ...]] = [(change,) for change in changes]
        made += [(up, down) for up, down in product(dearer, cheaper) if up[1] != down[1]]
        near: dict[Plan, None] = {}
        for each in sorted(made, key=lambda each: sum(rise for rise, _, _ in each)):
            now = stages(plan)
            for _, layer, choice in each:
                now = with_choice(now, layer, choice)
            if now and self.space.allows(changed := Plan(now)):
                near.setdefault(changed)
            if len(near) == EXCHANGES:
                break
        return list(near)


def choices(space: Space, layer: int) -> tuple[Choice, ...]:
    own, whole = stages(space.whole), space.price(space.whole)
    typed = (Visit(layer, source=name) for name in INTEGER_TYPES)
    cheaper = (each for each in typed if space.price(Plan(with_choice(own, layer, each))) < whole)
    return (Visit(layer), *cheaper, *([None] if "drop" in space.moves and space.depth > 1 else []))


def with_choice(now: Sequence[Stage], layer: int, choice: Choice) -> tuple[Stage, ...]:
    """Return the stages with every visit of a layer as `choice`; a skipped one is inserted in the original order.

    >>> plan = Plan.parse("0-2 1")
    >>> Plan(with_choice(stages(plan), 1, Visit(1, source="Q4_0"))), Plan(with_choice(stages(plan), 1, None))
    (Plan('0 Q4_0:1 2 Q4_0:1'), Plan('0 2'))
    >>> Plan(with_choice(stages(Plan.parse("0 2")), 1, Visit(1)))
    Plan('0-2')
    """
    visits = {index for index, stage in enumerate(now) if isinstance(stage, Visit) and stage.layer == layer}
    if choice is None or visits:
        changed = (choice if index in visits else stage for index, stage in enumerate(now))
        return tuple(stage for stage in changed if stage is not None)
    after = (index for index, stage in enumerate(now) if isinstance(stage, Visit) and stage.layer > layer)
    at = next(after, len(now))
    return (*now[:at], choice, *now[at:])


def allocate(
    evaluator: Evaluator,
    space: Space,
    arms: Mapping[str, Plan],
    *,
    width: int = WIDTH,
    settings: RungSettings | None = None,
) -> Iterator[SearchStep]:
    """Yield the allocation chosen by the rises, compared with `arms`, then the rounds of exchanges from the best.

    Raises `MeasureError` if even the fewest bits are above the limit.
    """
    allocations = Allocations.measured(evaluator, space)
    settings = replace(settings or RungSettings(), fewest=width)
    candidates = list(dict.fromkeys([allocations.cheapest(), *arms.values()]))
    ended = contest(evaluator, candidates, space.whole, settings=settings)
    yield SearchStep(BITS, ended)
    others = replace(space, moves=tuple(move for move in space.moves if move != BITS))
    yield from exchanges(
        evaluator, others, best_of(ended, width), width=width, settings=settings, around=allocations.exchanges
    )


def rule_plans(
    space: Space, scores: Iterable[Score], power: Mapping[int, float] = MappingProxyType({})
) -> dict[str, Plan]:
    """Return the allocation of each rule by name, none if no type is within the limit; `power` is of layers' inputs."""
    influence = block_influence(scores)
    orders = {
        UNIFORM: (),
        FIRST_AND_LAST: sorted(range(space.depth), key=lambda layer: (min(layer, space.depth - 1 - layer), layer)),
        "block_influence": sorted(influence, key=lambda layer: (-influence[layer], layer)),
        **({IMATRIX: sorted(power, key=lambda layer: (-power[layer], layer))} if power else {}),
    }
    return {name: plan for name, order in orders.items() if (plan := ranked(space, order)) is not None}


def random_allocations(space: Space, count: int, seed: int) -> list[Plan]:
    draw = Random(f"{seed}/{space.depth}/{BITS}")
    drawn: dict[Plan, None] = {}
    for _ in range(5 * count):
        plan = ranked(space, draw.sample(range(space.depth), space.depth))
        if plan is not None and len(drawn) < count:
            drawn.setdefault(plan)
    return list(drawn)


def ranked(space: Space, order: Sequence[int]) -> Plan | None:
    """Return a plan with as many first layers of `order` as fit at the type above the uniform one, others below it.

    Without an order every layer has the uniform type; `None` if no type is within the limit.
    """
    ladder = _ladder(space)
    level = next((number for number, source in enumerate(ladder) if space.allows(uniform(space.depth, source))), None)
    if level is None:
        return None
    if not order or level == 0:
        return uniform(space.depth, ladder[level])
    *more, low = ladder[level - 1 : level + 2]
    own: dict[int, str | None] = dict.fromkeys(range(space.depth), low)
    for layer in order:
        for source in more:
            if space.allows(_at({**own, layer: source})):
                own[layer] = source
                break
    return _at(own)


def _at(types: Mapping[int, str | None]) -> Plan:
    return _plan(Visit(layer, source=source) for layer, source in types.items())


def uniform(depth: int, source: str | None) -> Plan:
    """Every layer at one type, or as it is.

    >>> uniform(3, "Q8_0")
    Plan('Q8_0:0-2')
    """
    return _plan(Visit(layer, source=source) for layer in range(depth))


def _ladder(space: Space) -> list[str | None]:
    whole = space.price(space.whole)
    priced = [(space.price(uniform(space.depth, name)), name) for name in INTEGER_TYPES]
    return [None, *(name for price, name in sorted(priced, reverse=True) if price < whole)]


def _plan(chosen: Iterable[Choice]) -> Plan:
    return Plan(tuple(choice for choice in chosen if choice is not None))
