"""The steps of a search: the rounds, the choice among the finalists and the report each read a text of their own.

A search that was killed repeats the same rounds, reads the losses that are stored, and computes the rest. In addition
to the rows of `layerwise.search.confirm` and `layerwise.measure.contrasts.bits`, measure `search` has of a plan
`delta_nll` (task `search`), its `price` and membership of the `front` in a unit (`condition`), and 1 as `chosen`; of an
`arm` the plan that it chose (of `random` the number of the draw, from 1, which is its seed), and of a layer its `bits`.
Measure `search_round` has the `nll` of the best plan of each round (`amount`: its number, `condition`: its kind).
Measure `latency` has `ms` of a layer, of a `part` of it and of the `rest` of the model, and of a plan what is
`predicted` and `measured`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.errors import LayerwiseError, OptionError
from layerwise.measure.contrasts.bits import bits_contrasts
from layerwise.measure.cost.pass_time import Setting
from layerwise.measure.interventions.sweep import plan_records
from layerwise.measure.language.continuations import continuations
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan, families
from layerwise.plan.sublayer import SUBLAYERS
from layerwise.results import Rows, Run, Score
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import CONTINUATION
from layerwise.results.selection import PRESENT
from layerwise.runner.call import CallUnit, ExpectedWork
from layerwise.runner.experiment import Inputs
from layerwise.runner.losses import LossesUnit
from layerwise.runner.opening import (
    BATCH_TOKENS,
    cutting,
    divided_sentence,
    open_named,
    provenance,
    size_row,
    tokenized,
)
from layerwise.runner.price import remaining_passes
from layerwise.runner.reporter import Reporter, describe_data, describe_model, duration, waiting
from layerwise.runner.steps import Completed, Outline, Remaining, Steps
from layerwise.runner.text_length import ChosenText, TimedText, chosen_text
from layerwise.search.bits import FEWEST_BITS, allocate, random_allocations, uniform
from layerwise.search.budget import UNITS, Budget, Unit, front, thinned
from layerwise.search.confirm import against_arms, losses_above, winners_curse
from layerwise.search.cost import Spent
from layerwise.search.evaluator import GraphEvaluator
from layerwise.search.evolve import evolve
from layerwise.search.greedy import SearchStep, Space, greedy, winners
from layerwise.search.moves import BITS, CHEAPER, LONGEST_REPEAT, check_moves
from layerwise.search.one_shot import (
    RANDOM,
    RANDOM_SETS,
    one_shot_plans,
    random_sets,
    skip_effects,
    turning,
)
from layerwise.search.prices import Piece, PlanPrices, PriceTable, measured
from layerwise.search.rungs import FEWEST, SHARES, Evaluator, Round, divided_text, grown, mean_losses
from layerwise.stack import Stack, weight_hash
from layerwise.stack.rounding import has_bfloat16
from layerwise.studies.search.options import Search
from layerwise.studies.search.works import (
    REPORTED,
    confirmation,
    counted,
    of_plans,
    rule_arms,
    whole_search,
    worst_case,
)

PROMPT, NEW_TOKENS = 16, 32
"""Tokens of a sample's prompt, and of its continuation."""

Fronts = Mapping[Unit, Sequence[Plan]]


@dataclass(frozen=True)
class Finalists:
    """What a search ended with: its steps, the plans that it leaves to be chosen among, and the arms beside them."""

    steps: Sequence[SearchStep]
    plans: Sequence[Plan]
    arms: Mapping[str, Plan]
    random: Sequence[Plan]

    def within(self, space: Space) -> list[Plan]:
        return [plan for plan in dict.fromkeys([*self.plans, *self.arms.values()]) if space.allows(plan)]


def search(config: Search, reporter: Reporter, inputs: Inputs) -> Steps:
    """Search, choose and confirm.

    Raises `OptionError` for a budget that the original model meets, `DataError` for too little text.
    """
    began = time.monotonic()
    corpus = inputs.corpus or config.corpus(config.model)
    stack = config.with_sources(inputs.stack or open_named(config, reporter), reporter)
    moves, budget = check_moves(config.moves), Budget.parse(config.budget)
    config, own = _chosen(config, stack, corpus, reporter, began)
    text = own.data
    parts = divided_text(text, config.seed)
    rungs = grown(parts["search"], config.seed)
    second = None
    if config.second_text is not None:
        limit, length = own.amount(config)
        second = tokenized(
            replace(config, tokens=limit, minutes=None, max_length=length),
            stack,
            read_corpus(config.second_text),
            reporter,
            config.seed,
        )
    in_bfloat16 = compares_in_bfloat16(config, stack)
    setting = Setting(config.phase, config.batch, config.context)
    timed = (str(setting),) if config.times else ()
    others = (f"{name}:{weight_hash(stack.sources[name].model)[:16]}" for name in _other_models(stack))
    manifest = provenance(
        stack,
        text,
        families=("search", str(budget), *moves, config.method, f"width:{config.width}", *timed, *others),
        tasks=() if second is None else (f"second:{second.digest[:16]}",),
        seed=config.seed,
        settings={
            "batch_tokens": config.batch_tokens or BATCH_TOKENS,
            **({"compared_in": "bfloat16"} if in_bfloat16 else {}),
        },
    )
    foreseen = None if budget.unit == "ms" else space_of(config, stack, PlanPrices.of(stack))

    def says() -> Iterator[str]:
        yield describe_model(stack)
        yield describe_data(text)
        yield from own.says
        if in_bfloat16:
            yield "candidates are compared in bfloat16 (--dtype float32 compares in float32); held-out text in float32"
        yield f"{divided_sentence(parts)}; rungs of the search text: {len(rungs)}"
        if second is not None:
            yield f"second corpus: {describe_data(second)}"
        if config.method == "greedy" and foreseen is not None:
            bound = worst_case(config, stack, rungs, foreseen)
            yield (
                f"search: at most {bound.layer_tokens:,} layer evaluations x tokens and {bound.head_tokens:,} heads x "
                "tokens"
            )

    def remaining(_: Path, run: Run | None) -> Remaining | None:
        if run is not None and run.store.count_losses():
            return None
        space = space_of(config, stack, PlanPrices.of(stack), counted(config))
        return remaining_passes(stack, text, whole_search(config, stack, space, text), pace=own.seconds)

    yield Outline(manifest, says, ahead=(ExpectedWork(remaining),), chosen=own.options)
    losses = yield from LossesUnit()
    is_new = not losses.rows
    prices, table = PlanPrices.of(stack), list[Score]()
    if config.times:
        table = yield from CallUnit(
            vocab.LATENCY,
            lambda: latency_rows(measured(stack, setting)[0], str(setting)),
            f"timing every layer: {setting}",
            lambda row: row.plan is None,
        )
        prices = PlanPrices.of(stack, table_of(table))
    began = time.perf_counter()
    space = space_of(config, stack, prices)
    most = worst_case(config, stack, rungs, space)
    searched = losses.evaluator(stack, "search", rungs, most, in_bfloat16=in_bfloat16)
    finalists = _finalists(config, stack, searched, rungs, space, reporter)
    spent, seconds = searched.spent, time.perf_counter() - began
    reporter.log(cost_sentence(spent, seconds))
    most = of_plans(stack, 1 + len(finalists.within(space)), parts["select"])
    select = losses.evaluator(stack, "select", [parts["select"]], most)
    chosen = _choose(select, space, finalists, reporter)
    units = tuple(unit for unit in UNITS if unit != "ms" or config.times)
    fronts: Fronts = {
        unit: [
            point.plan for point in thinned(front(searched.complete(), partial(prices.of_plan, unit=unit)), REPORTED)
        ]
        for unit in units
    }
    rows = search_rows(searched.complete(), prices, units, space.whole)
    rows += losses_above(select.losses([space.whole, *finalists.within(space)]), space.whole, "select", seed=0)
    for name, data in (("report", parts["report"]), *(() if second is None else (("second", second),))):
        reporter.log(f"confirming on {name}")
        fresh = losses.evaluator(stack, name, [data], confirmation(config, stack, space, data))
        rows += _confirmed(config, fresh, name, searched, chosen, finalists, fronts)
    rows += member_rows(chosen, budget, fronts, finalists.arms, finalists.random)
    if BITS in moves:
        rows += allocation_rows(stack, prices, {vocab.CHOSEN: chosen, **finalists.arms})
        alone = [each for each in families.bits(stack.depth) if each.plan in searched.complete()]
        losses_alone = searched.losses([space.whole, *(each.plan for each in alone)])
        rows += bits_contrasts(losses_alone, plan_records(alone), stack.depth, seed=config.seed)
    times = _checked_times(stack, setting, prices, chosen, reporter) if config.times else []
    # What a search took is known where nothing interrupted it.
    costs = yield from CallUnit(
        "run", lambda: cost_rows(spent, seconds) if is_new else [], own=lambda row: row.part == "search"
    )
    # The rows of the search come last, because they say which plan was chosen.
    return Completed(
        [*round_rows(finalists.steps), *([*table, *times] if times else []), size_row(stack), *costs, *rows],
        {CONTINUATION: _samples(stack, parts["report"], chosen)},
    )


def compares_in_bfloat16(config: Search, stack: Stack) -> bool:
    """Return whether candidates are compared in bfloat16; held-out losses are always in the dtype of the model."""
    return config.dtype == "auto" and stack.dtype == torch.float32 and has_bfloat16(stack.device)


def _samples(stack: Stack, data: EvalData, chosen: Plan) -> list[str]:
    if stack.tokenizer is None or data.objective != "next_token":
        return []
    prompt = stack.tokenizer.decode(data.windows[0].ids[:PROMPT], skip_special_tokens=True)
    plans = list(dict.fromkeys([Plan.identity(stack.depth), chosen]))
    with suppress(LayerwiseError):  # a model that cannot generate has no sample
        return [each.note().text for each in continuations(stack, plans, [prompt], NEW_TOKENS)]
    return []


def _chosen(
    config: Search, stack: Stack, corpus: Corpus, reporter: Reporter, began: float
) -> tuple[Search, ChosenText]:
    space = space_of(config, stack, PlanPrices.of(stack), counted(config))
    cut = cutting(config, stack, corpus, config.seed)
    questions = [
        (each, TimedText(stack, cut, partial(whole_search, each, stack, space), 1, SHARES["report"], FEWEST))
        for each in config.questions()
    ]
    with waiting(reporter, f"tokenizing {corpus.name} and timing a batch"):
        return chosen_text(config, questions, corpus, began)


def space_of(config: Search, stack: Stack, prices: PlanPrices, instead: Budget | None = None) -> Space:
    """Return the search space within the budget, or the one `instead`; raises `OptionError` as `search` does."""
    budget, moves = instead or Budget.parse(config.budget), check_moves(config.moves)
    if BITS in moves:
        stack.check(uniform(stack.depth, FEWEST_BITS))
    whole = prices.of_plan(Plan.identity(stack.depth), budget.unit)
    limit, others = budget.limit(whole), _other_models(stack)
    if limit >= whole and set(moves) <= {*CHEAPER, BITS} and not others:
        raise OptionError(
            f"--budget {budget} leaves room for the whole model, which costs {whole:g} {budget.unit}: nothing has to "
            "be left out; give less"
        )
    longest = LONGEST_REPEAT if set(moves) & {*CHEAPER, BITS} else stack.depth
    return Space(stack.depth, moves, lambda plan: prices.of_plan(plan, budget.unit), limit, others, longest)


def _other_models(stack: Stack) -> tuple[str, ...]:
    return tuple(name for name, source in stack.sources.items() if source.model is not stack.model)


def random_plans(space: Space, count: int, seed: int) -> list[Plan]:
    allocations = random_allocations(space, count, seed) if BITS in space.moves else []
    return allocations or (random_sets(space, count, seed) if space.moves != (BITS,) else [])


def _finalists(
    config: Search, stack: Stack, searched: GraphEvaluator, rungs: Sequence[EvalData], space: Space, reporter: Reporter
) -> Finalists:
    shrinks = not space.allows(space.whole)
    mean_losses(searched, [space.whole], space.whole)
    arms: dict[str, Plan] = {}
    if shrinks:
        scores, bits = turning(stack, rungs), BITS in space.moves
        sets = (
            {} if bits and "drop" not in space.moves else one_shot_plans(space, scores, skip_effects(searched, space))
        )
        arms = {**sets, **(rule_arms(stack, space, scores) if bits else {})}
        mean_losses(searched, [*arms.values(), space.whole], space.whole)
    steps = []
    for step in _rounds(config, searched, space, arms):
        steps.append(step)
        reporter.log(round_sentence(len(steps), step, searched.complete().get(space.whole)))
    best = list(winners(steps, space))
    changes = [plan for plan in best if plan != space.whole]
    if not shrinks and changes:
        arms = {vocab.BEST_CHANGE: changes[0]}
    drawn = random_plans(space, RANDOM_SETS, config.seed) if shrinks else []
    return Finalists(steps, best[: config.width], arms, drawn)


def _rounds(config: Search, searched: Evaluator, space: Space, arms: Mapping[str, Plan]) -> Iterator[SearchStep]:
    if BITS in space.moves:
        yield from allocate(searched, space, arms, width=config.width)
    elif config.method == "greedy":
        yield from greedy(searched, space, width=config.width)
    elif config.method == "evolve":
        yield from evolve(searched, space, seed=config.seed)
    else:
        losses = mean_losses(searched, list(arms.values()), space.whole)
        yield SearchStep("one-shot", Round(dict(sorted(losses.items(), key=lambda each: each[1])), len(losses), 0, 0))


def _choose(select: GraphEvaluator, space: Space, finalists: Finalists, reporter: Reporter) -> Plan:
    losses = mean_losses(select, [*finalists.within(space), space.whole], space.whole)
    if not space.allows(space.whole):
        del losses[space.whole]
    chosen = min(losses, key=lambda plan: losses[plan])
    reporter.log(f"chosen on the selection text among {len(losses)} plans: {chosen}")
    return chosen


def _confirmed(
    config: Search,
    fresh: GraphEvaluator,
    name: str,
    searched: GraphEvaluator,
    chosen: Plan,
    finalists: Finalists,
    fronts: Fronts,
) -> Iterator[Score]:
    whole = Plan.identity(fresh.stack.depth)
    own = [chosen, *(plan for plans in fronts.values() for plan in plans), *finalists.arms.values()]
    plans = list(dict.fromkeys([whole, *own]))
    mean_losses(fresh, list(dict.fromkeys([*plans, *finalists.random])), whole)
    yield from losses_above(fresh.losses(plans), whole, name, seed=config.seed)
    yield from against_arms(
        fresh.losses([chosen, *finalists.arms.values(), *finalists.random]),
        chosen,
        finalists.arms,
        finalists.random,
        name,
        seed=config.seed,
    )
    if name == "report":
        complete = searched.complete()
        for plan in plans[1:]:
            if plan in complete:
                pair = [whole, plan]
                yield from winners_curse(searched.losses(pair), fresh.losses(pair), whole, plan)


def _checked_times(stack: Stack, setting: Setting, prices: PlanPrices, chosen: Plan, reporter: Reporter) -> list[Score]:
    if any(step.sublayer is not None or step.source is not None for step in chosen.steps()):
        reporter.log("milliseconds of the chosen plan are predicted: halves and types run no faster here")
        return []
    _, times = measured(stack, setting, [Plan.identity(stack.depth), chosen])
    return checked_latency_rows(times, prices, str(setting))


def search_rows(losses: Mapping[Plan, float], prices: PlanPrices, units: Sequence[Unit], whole: Plan) -> list[Score]:
    rows = []
    for plan in sorted(losses, key=str):
        if plan != whole:
            rows.append(
                Score(vocab.SEARCH, vocab.DELTA, losses[plan] - losses[whole], task=vocab.SEARCH, plan=str(plan))
            )
        own = {unit: prices.of_plan(plan, unit) for unit in units}
        rows += [Score(vocab.SEARCH, vocab.PRICE, price, plan=str(plan), condition=unit) for unit, price in own.items()]
    return rows


def member_rows(
    chosen: Plan,
    budget: Budget,
    fronts: Mapping[Unit, Sequence[Plan]],
    arms: Mapping[str, Plan],
    random: Sequence[Plan],
) -> list[Score]:
    members = [(unit, plan) for unit, plans in fronts.items() for plan in plans]
    draws = enumerate(random, start=1)
    return [
        Score(vocab.SEARCH, vocab.CHOSEN, 1.0, plan=str(chosen), condition=budget.unit, against=str(budget)),
        *(Score(vocab.SEARCH, vocab.FRONT, 1.0, plan=str(plan), condition=unit) for unit, plan in members),
        *(Score(vocab.SEARCH, vocab.ARM, 1.0, plan=str(plan), arm=name) for name, plan in arms.items()),
        *(Score(vocab.SEARCH, vocab.ARM, float(draw), plan=str(plan), arm=RANDOM, seed=draw) for draw, plan in draws),
    ]


def allocation_rows(stack: Stack, prices: PlanPrices, plans: Mapping[str, Plan]) -> list[Score]:
    """The bits of a weight in each layer of each arm's plan; `condition` is its type, where it has one."""
    weights = [sum(each.numel() for each in stack.block(layer).parameters()) for layer in range(stack.depth)]
    return [
        Score(
            vocab.SEARCH,
            vocab.BITS,
            8 * prices.bytes.of((step.layer, step.sublayer), step.source) / weights[step.layer],
            layer=step.layer,
            plan=str(plan),
            arm=name,
            condition=step.source,
        )
        for name, plan in plans.items()
        for step in {step.layer: step for step in plan.steps()}.values()
    ]


def round_rows(steps: Sequence[SearchStep]) -> list[Score]:
    best = ((number, step.kind, step.round.best, step.round.losses) for number, step in enumerate(steps, start=1))
    return [
        Score(vocab.SEARCH_ROUND, "nll", losses[plan], plan=str(plan), condition=kind, amount=number)
        for number, kind, plan, losses in best
    ]


def round_sentence(number: int, step: SearchStep, whole: float | None) -> str:
    ended = step.round
    loss = ended.losses[ended.best]
    above = f"{loss:.4f} nats" if whole is None else f"{loss - whole:+.4f} nats"
    left = f" ({ended.worse} left as worse, {ended.ranked} by rank)" if ended.worse + ended.ranked else ""
    return f"round {number}, {step.kind}: {ended.candidates} candidates{left}; best {ended.best}, {above} per token"


def latency_rows(table: PriceTable, setting: str) -> list[Score]:
    rows = [
        Score(vocab.LATENCY, vocab.MILLISECONDS, value, layer=layer, part=half, condition=setting)
        for (layer, half), value in table.pieces.items()
    ]
    return [*rows, Score(vocab.LATENCY, vocab.MILLISECONDS, table.rest, part=vocab.REST, condition=setting)]


def table_of(rows: Iterable[Score]) -> PriceTable:
    times = Rows(rows).where(metric=vocab.MILLISECONDS)
    pieces: dict[Piece, float] = {}
    for row in times.where(layer=PRESENT):
        pieces[row.layer or 0, next((half for half in SUBLAYERS if half == row.part), None)] = row.value
    return PriceTable(pieces, times.where(part=vocab.REST)[0].value)


def checked_latency_rows(times: Mapping[Plan, float], prices: PlanPrices, setting: str) -> list[Score]:
    return [
        Score(vocab.LATENCY, metric, value, plan=str(plan), condition=setting)
        for plan, own in times.items()
        for metric, value in (("predicted", prices.of_plan(plan, "ms")), ("measured", own))
    ]


def cost_rows(spent: Spent, seconds: float) -> list[Score]:
    figures = {
        "layer_tokens": float(spent.layer_tokens),
        "head_tokens": float(spent.head_tokens),
        "naive_layer_tokens": float(spent.naive),
        "seconds": seconds,
    }
    if spent.has_rates:
        figures["seconds_in_layers_and_heads"] = spent.at_rates(spent)
    return [Score("run", name, value, part="search") for name, value in figures.items()]


def cost_sentence(spent: Spent, seconds: float) -> str:
    if not spent.layer_tokens:
        return f"search: nothing was left to compute, {duration(seconds)}"
    busy = (spent.layer_seconds + spent.head_seconds) / seconds
    return (
        f"search: {spent.layer_tokens:,} layer evaluations x tokens, {spent.naive / spent.layer_tokens:.1f} x fewer "
        f"than every plan by itself on all of the text; {duration(seconds)}, {busy:.0%} of it in layers and heads"
    )
