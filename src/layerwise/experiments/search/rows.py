"""The rows of a search that are not confirmed numbers: prices, members of fronts and arms, rounds, costs, times.

Measure `search`, beside the rows of `layerwise.search.confirm`:

    delta_nll   plan, task `search`     what it loses above the model as trained where it was searched for; no interval
    price       plan, condition a unit  what it costs, in `layers`, `ms`, `bytes`
    front       plan, condition a unit  1 for a member of the front of that unit
    arm         plan, arm               1 for the plan that the arm chose; of `random` the number of the draw, from 1,
                                        which is its seed too
    chosen      plan, condition a unit  1; it is chosen within the budget that it is `against`

Measure `search_round`: of each round (`amount` is its number, `condition` its kind) the `nll` of its best plan.

Measure `latency`, in a setting (`condition`): `ms` of a layer, of a `part` of it, or of the `rest` of the model; of a
plan, what is `predicted` and `measured`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from layerwise.experiments.sentences import duration
from layerwise.plan import Plan
from layerwise.plan.sublayer import SUBLAYERS
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import (
    ARM,
    CHOSEN,
    DELTA,
    FRONT,
    LATENCY,
    MILLISECONDS,
    PRICE,
    REST,
    SEARCH,
    SEARCH_ROUND,
)
from layerwise.search.budget import Budget, Unit
from layerwise.search.cost import Spent
from layerwise.search.greedy import SearchStep
from layerwise.search.one_shot import RANDOM
from layerwise.search.prices import Piece, PlanPrices, PriceTable


def search_rows(losses: Mapping[Plan, float], prices: PlanPrices, units: Sequence[Unit], whole: Plan) -> list[Score]:
    """What every plan lost that read all of the search text, and what it costs."""
    rows = []
    for plan in sorted(losses, key=str):
        if plan != whole:
            rows.append(Score(SEARCH, DELTA, losses[plan] - losses[whole], task=SEARCH, plan=str(plan)))
        own = {unit: prices.of_plan(plan, unit) for unit in units}
        rows += [Score(SEARCH, PRICE, price, plan=str(plan), condition=unit) for unit, price in own.items()]
    return rows


def member_rows(
    chosen: Plan, budget: Budget, fronts: Mapping[Unit, Sequence[Plan]], arms: Mapping[str, Plan],
    random: Sequence[Plan],
) -> list[Score]:  # fmt: skip
    """Which plan was chosen, which are on a front, and which every arm chose."""
    members = [(unit, plan) for unit, plans in fronts.items() for plan in plans]
    draws = enumerate(random, start=1)
    return [
        Score(SEARCH, CHOSEN, 1.0, plan=str(chosen), condition=budget.unit, against=str(budget)),
        *(Score(SEARCH, FRONT, 1.0, plan=str(plan), condition=unit) for unit, plan in members),
        *(Score(SEARCH, ARM, 1.0, plan=str(plan), arm=name) for name, plan in arms.items()),
        *(Score(SEARCH, ARM, float(draw), plan=str(plan), arm=RANDOM, seed=draw) for draw, plan in draws),
    ]


def round_rows(steps: Sequence[SearchStep]) -> list[Score]:
    """The best of every round."""
    best = ((number, step.kind, step.round.best, step.round.losses) for number, step in enumerate(steps, start=1))
    return [
        Score(SEARCH_ROUND, "nll", losses[plan], plan=str(plan), condition=kind, amount=number)
        for number, kind, plan, losses in best
    ]


def round_sentence(number: int, step: SearchStep, whole: float | None) -> str:
    """A round in a sentence."""
    ended = step.round
    loss = ended.losses[ended.best]
    above = f"{loss:.4f} nats" if whole is None else f"{loss - whole:+.4f} nats"
    left = f" ({ended.worse} left as worse, {ended.ranked} by rank)" if ended.worse + ended.ranked else ""
    return f"round {number}, {step.kind}: {ended.candidates} candidates{left}; best {ended.best}, {above} per token"


def latency_rows(table: PriceTable, setting: str) -> list[Score]:
    """The measured table: milliseconds of each layer, of each half, and of the rest."""
    rows = [
        Score(LATENCY, MILLISECONDS, value, layer=layer, part=half, condition=setting)
        for (layer, half), value in table.pieces.items()
    ]
    return [*rows, Score(LATENCY, MILLISECONDS, table.rest, part=REST, condition=setting)]


def table_of(rows: Iterable[Score]) -> PriceTable:
    """The table that `latency_rows` wrote."""
    times = Rows(rows).where(metric=MILLISECONDS)
    pieces: dict[Piece, float] = {}
    for row in times.where(layer=PRESENT):
        pieces[row.layer or 0, next((half for half in SUBLAYERS if half == row.part), None)] = row.value
    return PriceTable(pieces, times.where(part=REST)[0].value)


def checked_latency_rows(times: Mapping[Plan, float], prices: PlanPrices, setting: str) -> list[Score]:
    """Whole plans: what the table predicts and what was measured."""
    return [
        Score(LATENCY, metric, value, plan=str(plan), condition=setting)
        for plan, measured in times.items()
        for metric, value in (("predicted", prices.of_plan(plan, "ms")), ("measured", measured))
    ]


def cost_rows(spent: Spent, seconds: float) -> list[Score]:
    """What the search took, of a run that nothing interrupted."""
    at_pace = spent.at_rates(spent)
    figures = {
        "layer_tokens": float(spent.layer_tokens), "head_tokens": float(spent.head_tokens),
        "naive_layer_tokens": float(spent.naive), "seconds": seconds,
        **({} if at_pace is None else {"seconds_in_layers_and_heads": at_pace}),
    }  # fmt: skip
    return [Score("run", name, value, part="search") for name, value in figures.items()]


def cost_sentence(spent: Spent, seconds: float) -> str:
    """What the search took, in a sentence."""
    if not spent.layer_tokens:
        return f"search: nothing was left to compute, {duration(seconds)}"
    busy = (spent.layer_seconds + spent.head_seconds) / seconds
    return (
        f"search: {spent.layer_tokens:,} layer evaluations x tokens, {spent.naive / spent.layer_tokens:.1f} x fewer "
        f"than every plan by itself on all of the text; {duration(seconds)}, {busy:.0%} of it in layers and heads"
    )
