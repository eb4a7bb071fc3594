"""Choose the quantization type of each layer within a budget of bytes, and baselines that need no search.

For every layer, each choice (unchanged, a GGUF type that saves bytes, or skipped) is measured with all other layers
unchanged. Assuming that loss increases add up, the change with the smallest increase per saved byte is made until the
plan fits the limit (multiple-choice knapsack; Sinha and Zoltners 1979, Operations Research 27(3)). Exchanges between
layers then improve the result. The baselines are `build_rule_plans` and `draw_random_allocations`.
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
from layerwise.search.edits import BITS, unroll
from layerwise.search.greedy import WIDTH, SearchStep, Space, exchange_layers, select_beam
from layerwise.search.one_shot import block_influence
from layerwise.search.rungs import Evaluator, RungSettings, mean_losses, run_round

UNIFORM = "uniform"
FIRST_AND_LAST = "first_and_last"
IMATRIX = "imatrix"

SMALLEST_TYPE = INTEGER_TYPES[0]

MAX_EXCHANGES = 48
"""Maximum number of exchanges that are measured in a round, the most promising first."""

Choice = Visit | None
"""A visit of a layer; None if the layer is skipped."""


@dataclass(frozen=True)
class Allocations:
    """The choices for every layer of `space`: a GGUF type, unquantized, or skipped.

    `rises` maps (layer, choice) to the loss increase when only this layer is changed.
    """

    space: Space
    rises: Mapping[tuple[int, Choice], float]

    @classmethod
    def measure(cls, evaluator: Evaluator, space: Space) -> Allocations:
        plans = {
            (layer, choice): Plan(apply_choice(unroll(space.original), layer, choice))
            for layer in range(space.depth)
            for choice in list_choices(space, layer)
        }
        losses = mean_losses(evaluator, list(dict.fromkeys([space.original, *plans.values()])), space.original)
        return cls(space, {key: losses[plan] - losses[space.original] for key, plan in plans.items()})

    @cached_property
    def bytes(self) -> Mapping[tuple[int, Choice], float]:
        whole = self.space.cost(self.space.original)
        return {
            (layer, choice): self.space.cost(Plan(apply_choice(unroll(self.space.original), layer, choice))) - whole
            for layer, choice in self.rises
        }

    def list_choices(self, layer: int) -> list[Choice]:
        return [choice for number, choice in self.rises if number == layer]

    def find_best(self) -> Plan:
        """Find the best plan within the limit greedily, assuming that the loss increases of layers add up."""
        space, now = self.space, dict[int, Choice]((layer, Visit(layer)) for layer in range(self.space.depth))
        while not space.allows(plan := _plan(now.values())):
            changes = [
                ((self.rises[layer, choice] - self.rises[layer, before]) / saved, layer, number, choice)
                for layer, before in now.items()
                for number, choice in enumerate(self.list_choices(layer))
                if (saved := self.bytes[layer, before] - self.bytes[layer, choice]) > 0
                and (choice is not None or sum(each is not None for each in now.values()) > 1)
            ]
            if not changes:
                raise MeasureError(
                    f"--budget must be at least {space.cost(plan):,.0f} bytes, the size with every layer in its "
                    f"smallest type, got {space.limit:,.0f}. Pass a larger budget, or --edits bits,drop."
                )
            _, layer, _, choice = min(changes, key=lambda change: change[:3])
            now[layer] = choice
        # The last change can save more than needed, which leaves bytes for other layers.
        while (better := self._improve(now)) is not None:
            now = better
        return _plan(now.values())

    def _improve(self, now: Mapping[int, Choice]) -> dict[int, Choice] | None:
        for layer, before in sorted(now.items(), key=lambda item: -self.rises[item]):
            for choice in sorted(self.list_choices(layer), key=lambda each: self.rises[layer, each]):
                changed = {**now, layer: choice}
                is_better = self.rises[layer, choice] < self.rises[layer, before] and any(changed.values())
                if is_better and self.space.allows(_plan(changed.values())):
                    return changed
        return None

    def propose_exchanges(self, plan: Plan) -> list[Plan]:
        visits = {visit.layer: visit for visit in unroll(plan) if isinstance(visit, Visit)}
        changes = [
            (rise - self.rises[layer, visits.get(layer)], layer, choice)
            for (layer, choice), rise in self.rises.items()
            if choice != visits.get(layer) and (layer, visits.get(layer)) in self.rises
        ]
        saves = [self.bytes[layer, choice] <= self.bytes[layer, visits.get(layer)] for _, layer, choice in changes]
        cheaper, costlier = list(compress(changes, saves)), list(compress(changes, map(not_, saves)))
        made: list[tuple[tuple[float, int, Choice], ...]] = [(change,) for change in changes]
        made += [(up, down) for up, down in product(costlier, cheaper) if up[1] != down[1]]
        near: dict[Plan, None] = {}
        for each in sorted(made, key=lambda each: sum(rise for rise, _, _ in each)):
            now = unroll(plan)
            for _, layer, choice in each:
                now = apply_choice(now, layer, choice)
            if now and self.space.allows(changed := Plan(now)):
                near.setdefault(changed)
            if len(near) == MAX_EXCHANGES:
                break
        return list(near)


def list_choices(space: Space, layer: int) -> tuple[Choice, ...]:
    stages, original = unroll(space.original), space.cost(space.original)
    typed = (Visit(layer, source=name) for name in INTEGER_TYPES)
    cheaper = (each for each in typed if space.cost(Plan(apply_choice(stages, layer, each))) < original)
    return (Visit(layer), *cheaper, *([None] if "drop" in space.edits and space.depth > 1 else []))


def apply_choice(now: Sequence[Stage], layer: int, choice: Choice) -> tuple[Stage, ...]:
    """Replace every occurrence of `layer` by `choice`, or remove them all if `choice` is None.

    If the layer does not occur, `choice` is inserted before the first layer with a higher number.

    >>> plan = Plan.parse("0-2 1")
    >>> Plan(apply_choice(unroll(plan), 1, Visit(1, source="Q4_0"))), Plan(apply_choice(unroll(plan), 1, None))
    (Plan('0 Q4_0:1 2 Q4_0:1'), Plan('0 2'))
    >>> Plan(apply_choice(unroll(Plan.parse("0 2")), 1, Visit(1)))
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
    controls: Mapping[str, Plan],
    *,
    width: int = WIDTH,
    settings: RungSettings | None = None,
) -> Iterator[SearchStep]:
    """Yield a round that compares the best allocation with `controls`, then rounds of exchanges between layers.

    Raises:
        MeasureError: If the plan exceeds the limit even with every layer in its smallest type.
    """
    allocations = Allocations.measure(evaluator, space)
    settings = replace(settings or RungSettings(), min_survivors=width)
    candidates = list(dict.fromkeys([allocations.find_best(), *controls.values()]))
    result = run_round(evaluator, candidates, space.original, settings=settings)
    yield SearchStep(BITS, result)
    others = replace(space, edits=tuple(edit for edit in space.edits if edit != BITS))
    yield from exchange_layers(
        evaluator,
        others,
        select_beam(result, width),
        width=width,
        settings=settings,
        around=allocations.propose_exchanges,
    )


def build_rule_plans(
    space: Space, scores: Iterable[Score], power: Mapping[int, float] = MappingProxyType({})
) -> dict[str, Plan]:
    """Map the name of each rule to its plan. Rules that find no plan within the limit are omitted.

    `power` has the mean squared input of each layer, from an importance matrix.
    """
    influence = block_influence(scores)
    orders = {
        UNIFORM: (),
        FIRST_AND_LAST: sorted(range(space.depth), key=lambda layer: (min(layer, space.depth - 1 - layer), layer)),
        "block_influence": sorted(influence, key=lambda layer: (-influence[layer], layer)),
        **({IMATRIX: sorted(power, key=lambda layer: (-power[layer], layer))} if power else {}),
    }
    return {name: plan for name, order in orders.items() if (plan := assign_by_rank(space, order)) is not None}


def draw_random_allocations(space: Space, count: int, seed: int) -> list[Plan]:
    draw = Random(f"{seed}/{space.depth}/bits")
    drawn: dict[Plan, None] = {}
    for _ in range(5 * count):
        plan = assign_by_rank(space, draw.sample(range(space.depth), space.depth))
        if plan is not None and len(drawn) < count:
            drawn.setdefault(plan)
    return list(drawn)


def assign_by_rank(space: Space, order: Sequence[int]) -> Plan | None:
    """Use more bits for the first layers of `order` than for the rest, and for as many of them as the limit allows.

    If `order` is empty, every layer has the same type. Return None if no type fits the limit.
    """
    ladder = _ladder(space)
    plans = (assign_uniform(space.depth, source) for source in ladder)
    level = next((number for number, plan in enumerate(plans) if space.allows(plan)), None)
    if level is None:
        return None
    if not order or level == 0:
        return assign_uniform(space.depth, ladder[level])
    *more, low = ladder[level - 1 : level + 2]
    types: dict[int, str | None] = dict.fromkeys(range(space.depth), low)
    for layer in order:
        for source in more:
            if space.allows(_assign({**types, layer: source})):
                types[layer] = source
                break
    return _assign(types)


def _assign(types: Mapping[int, str | None]) -> Plan:
    return _plan(Visit(layer, source=source) for layer, source in types.items())


def assign_uniform(depth: int, source: str | None) -> Plan:
    """Return the plan with every layer in the same type, or unquantized if `source` is None.

    >>> assign_uniform(3, "Q8_0")
    Plan('Q8_0:0-2')
    """
    return _plan(Visit(layer, source=source) for layer in range(depth))


def _ladder(space: Space) -> list[str | None]:
    original = space.cost(space.original)
    costs = [(space.cost(assign_uniform(space.depth, name)), name) for name in INTEGER_TYPES]
    return [None, *(name for cost, name in sorted(costs, reverse=True) if cost < original)]


def _plan(layers: Iterable[Choice]) -> Plan:
    return Plan(tuple(choice for choice in layers if choice is not None))
