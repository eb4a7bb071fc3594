"""The rows of a search that are not confirmed numbers: prices, members of fronts and arms, rounds, costs, times.

Measure `search`, beside the rows of `layerwise.search.confirm`:

    delta_nll   plan, task `search`    what it loses above the model as trained where it was searched for; no interval
    price       plan, task a unit      what it costs, in `layers`, `ms`, `bytes`
    front       plan, task a unit      1 for a member of the front of that unit
    arm         plan, task an arm      1 for the plan that the arm chose; of `random` the number of the draw, from 1
    chosen      plan, task the budget  1

Measure `search_round`: of subject a plan, task the number of the round, metric its kind, the loss of its best plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from layerwise.experiments.chosen_plan import CHOSEN, SEARCH
from layerwise.experiments.sentences import duration
from layerwise.plan import Plan
from layerwise.plan.sublayer import SUBLAYERS
from layerwise.results.rows import Score
from layerwise.search.budget import Unit
from layerwise.search.confirm import DELTA
from layerwise.search.cost import Spent
from layerwise.search.greedy import SearchStep
from layerwise.search.one_shot import RANDOM
from layerwise.search.prices import Piece, PlanPrices, PriceTable

LATENCY = "latency"
ROUND = "search_round"
REST = "rest"


def search_rows(losses: Mapping[Plan, float], prices: PlanPrices, units: Sequence[Unit], whole: Plan) -> list[Score]:
    """What every plan lost that read all of the search text, and what it costs."""
    rows = []
    for plan in sorted(losses, key=str):
        if plan != whole:
            rows.append(Score(SEARCH, str(plan), "search", DELTA, losses[plan] - losses[whole]))
        rows += [Score(SEARCH, str(plan), unit, "price", prices.of_plan(plan, unit)) for unit in units]
    return rows


def member_rows(
    chosen: Plan, budget: str, fronts: Mapping[Unit, Sequence[Plan]], arms: Mapping[str, Plan], random: Sequence[Plan]
) -> list[Score]:
    """Which plan was chosen, which are on a front, and which every arm chose."""
    rows = [Score(SEARCH, str(chosen), budget, CHOSEN, 1.0)]
    rows += [Score(SEARCH, str(plan), unit, "front", 1.0) for unit, plans in fronts.items() for plan in plans]
    rows += [Score(SEARCH, str(plan), name, "arm", 1.0) for name, plan in arms.items()]
    rows += [Score(SEARCH, str(plan), RANDOM, "arm", float(draw)) for draw, plan in enumerate(random, start=1)]
    return rows


def round_rows(steps: Sequence[SearchStep]) -> list[Score]:
    """The best of every round."""
    return [
        Score(ROUND, str(step.round.best), str(number), step.kind, step.round.losses[step.round.best])
        for number, step in enumerate(steps, start=1)
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
        Score(LATENCY, str(layer) if half is None else f"{layer}.{half}", setting, "ms", value)
        for (layer, half), value in table.pieces.items()
    ]
    return [*rows, Score(LATENCY, REST, setting, "ms", table.rest)]


def table_of(rows: Iterable[Score]) -> PriceTable:
    """The table that `latency_rows` wrote."""
    times = {row.subject: row.value for row in rows if row.metric == "ms"}
    pieces: dict[Piece, float] = {}
    for name, value in times.items():
        layer, _, half = name.partition(".")
        if name != REST:
            pieces[int(layer), next((sublayer for sublayer in SUBLAYERS if sublayer == half), None)] = value
    return PriceTable(pieces, times[REST])


def checked_latency_rows(times: Mapping[Plan, float], prices: PlanPrices, setting: str) -> list[Score]:
    """Whole plans: what the table predicts and what was measured."""
    return [
        Score(LATENCY, str(plan), setting, metric, value)
        for plan, measured in times.items()
        for metric, value in (("plan_predicted", prices.of_plan(plan, "ms")), ("plan_measured", measured))
    ]


def cost_rows(spent: Spent, seconds: float) -> list[Score]:
    """What the search took, of a run that nothing interrupted."""
    at_pace = spent.at_rates(spent)
    figures = {
        "layer_tokens": float(spent.layer_tokens), "head_tokens": float(spent.head_tokens),
        "naive_layer_tokens": float(spent.naive), "seconds": seconds,
        **({} if at_pace is None else {"seconds_in_layers_and_heads": at_pace}),
    }  # fmt: skip
    return [Score("run", "search", "all", name, value) for name, value in figures.items()]


def cost_sentence(spent: Spent, seconds: float) -> str:
    """What the search took, in a sentence."""
    if not spent.layer_tokens:
        return f"search: nothing was left to compute, {duration(seconds)}"
    busy = (spent.layer_seconds + spent.head_seconds) / seconds
    return (
        f"search: {spent.layer_tokens:,} layer evaluations x tokens, {spent.naive / spent.layer_tokens:.1f} x fewer "
        f"than every plan by itself on all of the text; {duration(seconds)}, {busy:.0%} of it in layers and heads"
    )
