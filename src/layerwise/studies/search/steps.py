"""The steps of a search: the rounds, the choice among the finalists and the report each read a text of their own.

A search that was killed repeats the same rounds, reads the losses that are stored, and computes the rest. In addition
to the rows of `layerwise.search.confirm` and `layerwise.measure.contrasts.layers`, measure `search` has of a plan
`delta_nll` (task `search`), its `price` and membership of the `front` in a unit (`condition`), and 1 as `chosen`; of an
`arm` the plan that it chose (of `random` the number of the draw, from 1, which is its seed), and of a layer its `bits`.
Measure `search_round` has the `nll` of the best plan of each round (`amount`: its number, `condition`: its kind).
Measure `latency` has `ms` of a layer, of a `part` of it and of the `rest` of the model, and of a plan what is
`predicted` and `measured`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.errors import LayerwiseError, OptionError
from layerwise.measure.contrasts.layers import contrast_quantized_layers
from layerwise.measure.cost.pass_time import Setting
from layerwise.measure.interventions.sweep import head_cost_in_layers, plan_records
from layerwise.measure.language.continuations import continue_prompts
from layerwise.measure.language.evaluation_data import BATCH_TOKENS, EvalData, tokenize
from layerwise.plan import Plan, families
from layerwise.plan.checks import SUBLAYERS, source_name
from layerwise.results import Manifest, Rows, Run, Score
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import CONTINUATION
from layerwise.results.selection import PRESENT
from layerwise.runner.opening import describe_parts, make_text_manifest, open_stack
from layerwise.runner.price import remaining_passes
from layerwise.runner.reporter import Reporter, describe_data, describe_model, format_duration, report_waiting
from layerwise.runner.tasks import PlannedWork, Remaining, RowsTask, Study
from layerwise.runner.text_length import ChosenText, TextRequest, TimedText, choose_text
from layerwise.search.bits import FEWEST_BITS, allocate, random_allocations, uniform
from layerwise.search.budget import UNITS, Budget, Unit, front, thinned
from layerwise.search.confirm import against_arms, losses_above, winners_curse
from layerwise.search.evaluator import GraphEvaluator, Spent
from layerwise.search.evolve import evolve
from layerwise.search.greedy import SearchStep, Space, greedy, winners
from layerwise.search.moves import BITS, CHEAPER, LONGEST_REPEAT
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
from layerwise.studies.search.settings import WIDTH, SearchSettings
from layerwise.studies.search.works import (
    REPORTED,
    confirmation,
    of_plans,
    rule_arms,
    whole_search,
    worst_case,
)

PROMPT, NEW_TOKENS = 16, 32
"""Tokens of a sample's prompt, and of its continuation."""


@dataclass(frozen=True)
class PreparedSearch:
    """A search whose model and texts are open: its settings, the parts of its text, and what is timed.

    In `space` a budget of milliseconds is one of layers (`counted_budget`), until the layers are timed.
    """

    stack: Stack
    settings: SearchSettings
    prices: PlanPrices
    space: Space
    chosen: ChosenText
    parts: Mapping[str, EvalData]
    rungs: Sequence[EvalData]
    second: EvalData | None
    setting: Setting
    in_bfloat16: bool


@dataclass(frozen=True)
class SearchOutcome:
    """The losses and prices of plans on the search text, and the cost of the search.

    The plan is chosen among the `finalists` and the `arms`, and compared with these and the `random` ones.
    """

    space: Space
    prices: PlanPrices
    searched: GraphEvaluator
    steps: Sequence[SearchStep]
    finalists: Sequence[Plan]
    arms: Mapping[str, Plan]
    random: Sequence[Plan]
    fronts: Mapping[Unit, Sequence[Plan]]
    seconds: float
    is_new: bool


def add_sources(
    stack: Stack,
    locations: Sequence[str],
    reporter: Reporter,
    *,
    tokenizer: str | None,
    layers: str | None,
    revision: str | None,
) -> Stack:
    """Return the stack with the layers of the other models as b, c, ...

    Raises:
        ModelError: If a model is built differently.
    """
    if not locations:
        return stack
    named = {source_name(0): stack}
    for number, location in enumerate(locations, start=1):
        named[source_name(number)] = open_stack(
            location,
            reporter,
            device=str(stack.device),
            dtype=str(stack.dtype),
            tokenizer=tokenizer,
            layers=layers,
            revision=revision,
        )
    able = copy.copy(stack)
    able.sources = Stack.with_sources(named).sources
    return able


def prepare(
    stack: Stack,
    requested: SearchSettings,
    text: object,
    corpus: Corpus,
    second_text: Path | None,
    reporter: Reporter,
    *,
    setting: Setting,
    size: int | None,
    compares_in_bfloat16: bool,
) -> PreparedSearch:
    """Choose the text and how it is searched, and divide it.

    Raises:
        OptionError: If the original model meets the budget.
        DataError: If there is too little text.
    """
    seed, request, prices = requested.seed, TextRequest.of_call(text), PlanPrices.of(stack)
    space = space_of(stack, requested, prices, requested.counted_budget())
    cut = partial(tokenize, stack, corpus, batch_tokens=size or BATCH_TOKENS, seed=seed)
    with report_waiting(reporter, f"tokenizing {corpus.name} and timing a batch"):
        candidates = []
        for changed in _list_smaller(requested, stack):
            cost = partial(whole_search, stack, requested.settled(**changed), prices, space)
            candidates.append((changed, TimedText(stack, cut, cost, 1, SHARES["report"], FEWEST)))
        chosen = choose_text(request, candidates, corpus)
    second = None
    if second_text is not None:
        other = read_corpus(second_text)
        with report_waiting(reporter, f"tokenizing {other.name}"):
            second = tokenize(stack, other, *chosen.amount(request), batch_tokens=size or BATCH_TOKENS, seed=seed)
    parts = divided_text(chosen.data, seed)
    return PreparedSearch(
        stack=stack,
        settings=requested.settled(chosen.options.get("method"), chosen.options.get("width")),
        prices=prices,
        space=space,
        chosen=chosen,
        parts=parts,
        rungs=grown(parts["search"], seed),
        second=second,
        setting=setting,
        in_bfloat16=compares_in_bfloat16,
    )


def _list_smaller(requested: SearchSettings, stack: Stack) -> list[dict[str, Any]]:
    """List what a search may change to take less time, the costliest first."""
    if requested.method != "auto" or requested.width != WIDTH:
        return [{}]
    removes = requested.moves == ("drop",) and not _other_models(stack) and not requested.budget.holds_whole
    return [{}, {"width": 1}, *([{"method": "one-shot"}] if removes else [])]


def describe_run(prepared: PreparedSearch, size: int | None) -> Manifest:
    """Return the manifest; its families are what decides what a row means besides the text and the seed."""
    stack, settings, second = prepared.stack, prepared.settings, prepared.second
    timed = (str(prepared.setting),) if settings.is_timed else ()
    others = (f"{name}:{weight_hash(stack.sources[name].model)[:16]}" for name in _other_models(stack))
    how = (str(settings.budget), *settings.moves, settings.method, f"width:{settings.width}")
    return make_text_manifest(
        stack,
        prepared.chosen.data,
        families=("search", *how, *timed, *others),
        tasks=() if second is None else (f"second:{second.digest[:16]}",),
        seed=settings.seed,
        settings={
            "batch_tokens": size or BATCH_TOKENS,
            **({"compared_in": "bfloat16"} if prepared.in_bfloat16 else {}),
        },
    )


def describe_work(prepared: PreparedSearch) -> list[str]:
    stack, settings, text = prepared.stack, prepared.settings, prepared.chosen.data
    lines = [describe_model(stack), describe_data(text), *prepared.chosen.says]
    if prepared.in_bfloat16:
        lines.append(
            "candidates are compared in bfloat16 (--dtype float32 compares in float32); held-out text in float32"
        )
    lines.append(f"{describe_parts(prepared.parts)}; rungs of the search text: {len(prepared.rungs)}")
    if prepared.second is not None:
        lines.append(f"second corpus: {describe_data(prepared.second)}")
    if settings.method == "greedy" and settings.budget.unit != "ms":
        bound = worst_case(stack, settings, prepared.rungs, prepared.space)
        lines.append(
            f"search: at most {bound.layer_tokens:,} layer evaluations x tokens and {bound.head_tokens:,} heads x "
            "tokens"
        )
    return lines


def expected_work(prepared: PreparedSearch) -> PlannedWork:
    """Return the whole search as work to count; of an interrupted one the rest is unknown."""
    stack, settings, text = prepared.stack, prepared.settings, prepared.chosen.data

    def count_left(_: Path, run: Run | None) -> Remaining | None:
        if run is not None and run.store.count_losses():
            return None
        cost = whole_search(stack, settings, prepared.prices, prepared.space, text)
        return remaining_passes(stack, text, cost, pace=prepared.chosen.seconds)

    return PlannedWork(count_left)


def time_layers(prepared: PreparedSearch) -> RowsTask:
    setting = str(prepared.setting)
    return RowsTask(
        vocab.LATENCY,
        lambda: latency_rows(measured(prepared.stack, prepared.setting)[0], setting),
        f"timing every layer: {setting}",
        lambda row: row.plan is None,
    )


def open_evaluator(
    session: Study,
    stack: Stack,
    name: str,
    rungs: Sequence[EvalData],
    most: Spent,
    *,
    in_bfloat16: bool = False,
) -> GraphEvaluator:
    """Return an evaluator of plans on a text, `name` in its rows, that stores losses at once and reads stored ones.

    Its progress is relative to `most`.
    """
    prefix, head, began = f"{name}/", head_cost_in_layers(stack), time.monotonic()
    known = [row for row in session.store.losses() if row.task.startswith(prefix)]

    def watch(spent: Spent) -> None:
        done, due = (each.layer_tokens + head * each.head_tokens for each in (spent, most))
        share = min(1.0, done / due)
        session.reporter.progress(name, share, (time.monotonic() - began) * (1 - share) / share)

    return GraphEvaluator(stack, rungs, session.store.add_losses, known, prefix, watch, in_bfloat16=in_bfloat16)


def find_plans(prepared: PreparedSearch, session: Study, table: Sequence[Score], reporter: Reporter) -> SearchOutcome:
    """Run the rounds on the search text; `table` are the milliseconds of layers, if they were timed."""
    stack, settings, is_new = prepared.stack, prepared.settings, not session.store.count_losses()
    prices = replace(prepared.prices, ms=table_of(table)) if table else prepared.prices
    began = time.perf_counter()
    space = space_of(stack, settings, prices)
    most = worst_case(stack, settings, prepared.rungs, space)
    searched = open_evaluator(session, stack, "search", prepared.rungs, most, in_bfloat16=prepared.in_bfloat16)
    mean_losses(searched, [space.whole], space.whole)
    shrinks = not space.allows(space.whole)
    arms = _measure_arms(prepared, searched, space) if shrinks else {}
    steps = []
    for step in _rounds(settings, searched, space, arms):
        steps.append(step)
        reporter.log(round_sentence(len(steps), step, searched.complete().get(space.whole)))
    best = list(winners(steps, space))
    changes = [plan for plan in best if plan != space.whole]
    if not shrinks and changes:
        arms = {vocab.BEST_CHANGE: changes[0]}
    seconds = time.perf_counter() - began
    reporter.log(cost_sentence(searched.spent, seconds))
    complete = searched.complete()
    fronts = {
        unit: [point.plan for point in thinned(front(complete, partial(prices.of_plan, unit=unit)), REPORTED)]
        for unit in list_units(settings)
    }
    return SearchOutcome(
        space=space,
        prices=prices,
        searched=searched,
        steps=steps,
        finalists=best[: settings.width],
        arms=arms,
        random=random_plans(space, RANDOM_SETS, settings.seed) if shrinks else [],
        fronts=fronts,
        seconds=seconds,
        is_new=is_new,
    )


def list_units(settings: SearchSettings) -> tuple[Unit, ...]:
    return tuple(unit for unit in UNITS if unit != "ms" or settings.is_timed)


def choose_plan(
    prepared: PreparedSearch, session: Study, outcome: SearchOutcome, reporter: Reporter
) -> tuple[Plan, list[Score]]:
    """Return the best of the finalists on the selection text, and the rows of all of them."""
    space, part, whole = outcome.space, prepared.parts["select"], outcome.space.whole
    plans = [each for each in dict.fromkeys([*outcome.finalists, *outcome.arms.values()]) if space.allows(each)]
    select = open_evaluator(session, prepared.stack, "select", [part], of_plans(prepared.stack, 1 + len(plans), part))
    means = mean_losses(select, [*plans, whole], whole)
    if not space.allows(whole):
        del means[whole]
    chosen = min(means, key=lambda plan: means[plan])
    reporter.log(f"chosen on the selection text among {len(means)} plans: {chosen}")
    return chosen, list(losses_above(select.losses([whole, *plans]), whole, "select", seed=0))


def confirm_plans(
    prepared: PreparedSearch, session: Study, outcome: SearchOutcome, chosen: Plan, reporter: Reporter
) -> list[Score]:
    """Return rows of the chosen plan, the fronts and the arms on text that chose nothing."""
    stack, settings = prepared.stack, prepared.settings
    rows = list[Score]()
    second = () if prepared.second is None else (("second", prepared.second),)
    for name, data in (("report", prepared.parts["report"]), *second):
        reporter.log(f"confirming on {name}")
        most = confirmation(stack, settings, outcome.prices, outcome.space, data)
        fresh = open_evaluator(session, stack, name, [data], most)
        rows += _confirm_on(fresh, name, outcome, chosen, settings.seed)
    return rows


def describe_plans(prepared: PreparedSearch, outcome: SearchOutcome, chosen: Plan) -> list[Score]:
    """Return rows that say what each plan was: chosen, on a front, or an arm; and the bits of its layers."""
    stack, settings, searched = prepared.stack, prepared.settings, outcome.searched
    members = [(unit, plan) for unit, plans in outcome.fronts.items() for plan in plans]
    draws = enumerate(outcome.random, start=1)
    rows = [
        Score(
            vocab.SEARCH,
            vocab.CHOSEN,
            1.0,
            plan=str(chosen),
            unit=settings.budget.unit,
            against=str(settings.budget),
        ),
        *(Score(vocab.SEARCH, vocab.FRONT, 1.0, plan=str(plan), unit=unit) for unit, plan in members),
        *(Score(vocab.SEARCH, vocab.ARM, 1.0, plan=str(plan), arm=name) for name, plan in outcome.arms.items()),
        *(Score(vocab.SEARCH, vocab.ARM, float(draw), plan=str(plan), arm=RANDOM, seed=draw) for draw, plan in draws),
    ]
    if BITS in settings.moves:
        rows += allocation_rows(stack, outcome.prices, {vocab.CHOSEN: chosen, **outcome.arms})
        alone = [each for each in families.bits(stack.depth) if each.plan in searched.complete()]
        losses_alone = searched.losses([outcome.space.whole, *(each.plan for each in alone)])
        rows += contrast_quantized_layers(losses_alone, plan_records(alone), stack.depth, seed=settings.seed)
    return rows


def keep_costs(outcome: SearchOutcome) -> RowsTask:
    """Return the task that keeps what a search took, which is known if nothing interrupted it."""
    return RowsTask(
        "run",
        lambda: cost_rows(outcome.searched.spent, outcome.seconds) if outcome.is_new else [],
        is_own=lambda row: row.section == "search",
    )


def continue_text(prepared: PreparedSearch, chosen: Plan) -> dict[str, Sequence[str]]:
    """Return notes: how the original model and the chosen plan continue the held-out text."""
    stack, data = prepared.stack, prepared.parts["report"]
    if stack.tokenizer is None or data.objective != "next_token":
        return {CONTINUATION: []}
    prompt = stack.tokenizer.decode(data.windows[0].ids[:PROMPT], skip_special_tokens=True)
    plans = list(dict.fromkeys([Plan.identity(stack.depth), chosen]))
    with suppress(LayerwiseError):  # a model that cannot generate has no sample
        return {CONTINUATION: [each.note().text for each in continue_prompts(stack, plans, [prompt], NEW_TOKENS)]}
    return {CONTINUATION: []}


def space_of(stack: Stack, settings: SearchSettings, prices: PlanPrices, instead: Budget | None = None) -> Space:
    """Return the search space within the budget, or the one `instead`.

    Raises:
        OptionError: If the original model meets the budget.
    """
    budget, moves = instead or settings.budget, settings.moves
    if BITS in moves:
        stack.check(uniform(stack.depth, FEWEST_BITS))
    whole = prices.of_plan(Plan.identity(stack.depth), budget.unit)
    limit, others = budget.limit(whole), _other_models(stack)
    if limit >= whole and set(moves) <= {*CHEAPER, BITS} and not others:
        raise OptionError(
            f"--budget must be below the {whole:g} {budget.unit} of the whole model, got {budget}. Pass less, so that "
            "something has to be left out."
        )
    longest = LONGEST_REPEAT if set(moves) & {*CHEAPER, BITS} else stack.depth
    return Space(stack.depth, moves, lambda plan: prices.of_plan(plan, budget.unit), limit, others, longest)


def _other_models(stack: Stack) -> tuple[str, ...]:
    return tuple(name for name, source in stack.sources.items() if source.model is not stack.model)


def random_plans(space: Space, count: int, seed: int) -> list[Plan]:
    allocations = random_allocations(space, count, seed) if BITS in space.moves else []
    return allocations or (random_sets(space, count, seed) if space.moves != (BITS,) else [])


def _measure_arms(prepared: PreparedSearch, searched: GraphEvaluator, space: Space) -> dict[str, Plan]:
    scores, arms = turning(prepared.stack, prepared.rungs), dict[str, Plan]()
    if space.moves != (BITS,):
        arms |= one_shot_plans(space, scores, skip_effects(searched, space))
    if BITS in space.moves:
        arms |= rule_arms(prepared.stack, space, scores)
    mean_losses(searched, [*arms.values(), space.whole], space.whole)
    return arms


def _rounds(
    settings: SearchSettings, searched: Evaluator, space: Space, arms: Mapping[str, Plan]
) -> Iterator[SearchStep]:
    if BITS in space.moves:
        yield from allocate(searched, space, arms, width=settings.width)
    elif settings.method == "greedy":
        yield from greedy(searched, space, width=settings.width)
    elif settings.method == "evolve":
        yield from evolve(searched, space, seed=settings.seed)
    else:
        losses = mean_losses(searched, list(arms.values()), space.whole)
        yield SearchStep("one-shot", Round(dict(sorted(losses.items(), key=lambda each: each[1])), len(losses), 0, 0))


def _confirm_on(fresh: GraphEvaluator, name: str, outcome: SearchOutcome, chosen: Plan, seed: int) -> Iterator[Score]:
    whole, searched, arms, random = outcome.space.whole, outcome.searched, outcome.arms, outcome.random
    own = [chosen, *(plan for plans in outcome.fronts.values() for plan in plans), *arms.values()]
    plans = list(dict.fromkeys([whole, *own]))
    mean_losses(fresh, list(dict.fromkeys([*plans, *random])), whole)
    yield from losses_above(fresh.losses(plans), whole, name, seed=seed)
    compared = fresh.losses([chosen, *arms.values(), *random])
    yield from against_arms(compared, chosen, arms, random, name, seed=seed)
    if name == "report":
        complete = searched.complete()
        for plan in plans[1:]:
            if plan in complete:
                pair = [whole, plan]
                yield from winners_curse(searched.losses(pair), fresh.losses(pair), whole, plan)


def check_times(prepared: PreparedSearch, outcome: SearchOutcome, chosen: Plan, reporter: Reporter) -> list[Score]:
    """Time the original model and the chosen plan, if its parts are faster here."""
    if any(step.sublayer is not None or step.source is not None for step in chosen.steps()):
        reporter.log("milliseconds of the chosen plan are predicted: halves and types run no faster here")
        return []
    _, times = measured(prepared.stack, prepared.setting, [Plan.identity(prepared.stack.depth), chosen])
    return checked_latency_rows(times, outcome.prices, str(prepared.setting))


def search_rows(prepared: PreparedSearch, outcome: SearchOutcome) -> list[Score]:
    losses, whole = outcome.searched.complete(), outcome.space.whole
    units, rows = list_units(prepared.settings), list[Score]()
    for plan in sorted(losses, key=str):
        if plan != whole:
            rows.append(
                Score(vocab.SEARCH, vocab.DELTA, losses[plan] - losses[whole], task=vocab.SEARCH, plan=str(plan))
            )
        own = {unit: outcome.prices.of_plan(plan, unit) for unit in units}
        rows += [Score(vocab.SEARCH, vocab.PRICE, price, plan=str(plan), unit=unit) for unit, price in own.items()]
    return rows


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
        Score(vocab.SEARCH_ROUND, "nll", losses[plan], plan=str(plan), condition=kind, round=number)
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
    if spent.layer_tokens:
        figures["seconds_in_layers_and_heads"] = spent.layer_seconds + spent.head_seconds
    return [Score("run", name, value, section="search") for name, value in figures.items()]


def cost_sentence(spent: Spent, seconds: float) -> str:
    if not spent.layer_tokens:
        return f"search: nothing was left to compute, {format_duration(seconds)}"
    busy = (spent.layer_seconds + spent.head_seconds) / seconds
    return (
        f"search: {spent.layer_tokens:,} layer evaluations x tokens, {spent.naive / spent.layer_tokens:.1f} x fewer "
        f"than every plan by itself on all of the text; {format_duration(seconds)}, {busy:.0%} of it in layers and "
        "heads"
    )
