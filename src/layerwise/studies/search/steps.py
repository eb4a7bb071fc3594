"""The steps of `layerwise search`: search rounds, selection among the finalists, and confirmation.

Each step uses a different part of the text. An interrupted search repeats the same rounds but reads stored losses.
These rows are added to those of `layerwise.search.confirm` and `layerwise.measure.contrasts.layers`:

    search          plans: `delta_nll` on the search text, `cost` and `front` (by `unit`), and `chosen` (selected plan)
                    controls (by `variant`): `control_plan`, which is 1 or the number of a random draw
                    layers: `bits` per weight
    search_round    `nll` of the best plan of each round (`condition`: kind of the round)
    latency         `ms` of layers, sublayers and the rest of the model; `predicted` and `measured` ms of plans
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
from layerwise.search.bits import SMALLEST_TYPE, allocate, assign_uniform, draw_random_allocations
from layerwise.search.budget import UNITS, Budget, Unit, compute_front, thin_out
from layerwise.search.confirm import compare_controls, compute_loss_changes, compute_selection_gap
from layerwise.search.costs import CostTable, Piece, PlanCosts, measure_milliseconds
from layerwise.search.edits import BITS, CHEAPER_EDITS, MAX_REPEAT
from layerwise.search.evaluator import GraphEvaluator, SearchCost
from layerwise.search.evolve import evolve
from layerwise.search.greedy import SearchStep, Space, greedy, rank_plans
from layerwise.search.one_shot import (
    RANDOM,
    RANDOM_SETS,
    build_one_shot_plans,
    draw_random_sets,
    measure_skip_effects,
    measure_turning,
)
from layerwise.search.rungs import MIN_SPLIT_DOCUMENTS, SHARES, Evaluator, Round, mean_losses, split_rungs, split_text
from layerwise.stack import Stack, weight_hash
from layerwise.studies.search.estimate import (
    MAX_REPORTED,
    count_plans,
    estimate_confirmation,
    estimate_search,
    estimate_worst_case,
    rule_controls,
)
from layerwise.studies.search.settings import WIDTH, SearchSettings

HELD_OUT_NAMES = {"report": "held-out text", "second": "the second corpus"}

PROMPT, NEW_TOKENS = 16, 32
"""Number of tokens of a sample prompt, and of its continuation."""


@dataclass(frozen=True)
class PreparedSearch:
    """A search with its model loaded and its text split.

    Until the layers are timed, `space` has a limit in layers instead of milliseconds (`counted_budget`).
    """

    stack: Stack
    settings: SearchSettings
    costs: PlanCosts
    space: Space
    chosen: ChosenText
    parts: Mapping[str, EvalData]
    rungs: Sequence[EvalData]
    second: EvalData | None
    setting: Setting
    in_bfloat16: bool


@dataclass(frozen=True)
class SearchOutcome:
    """Result of the search rounds.

    One of `finalists` and `controls` will be selected, and compared with the controls and the `random` plans.
    """

    space: Space
    costs: PlanCosts
    searched: GraphEvaluator
    steps: Sequence[SearchStep]
    finalists: Sequence[Plan]
    controls: Mapping[str, Plan]
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
    """Return the stack with the layers of other models, which plans refer to as b, c, ..."""
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
    combined = copy.copy(stack)
    combined.sources = Stack.with_sources(named).sources
    return combined


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
    """Choose the amount of text and the search algorithm, and split the text."""
    seed, request, costs = requested.seed, TextRequest.of_call(text), PlanCosts.from_stack(stack)
    space = build_space(stack, requested, costs, requested.counted_budget())
    cut = partial(tokenize, stack, corpus, batch_tokens=size or BATCH_TOKENS, seed=seed)
    with report_waiting(reporter, f"tokenizing {corpus.name} and timing a batch"):
        candidates = []
        for changed in _list_smaller(requested, stack):
            cost = partial(estimate_search, stack, requested.resolve(**changed), costs, space)
            candidates.append((changed, TimedText(stack, cut, cost, 1, SHARES["report"], MIN_SPLIT_DOCUMENTS)))
        chosen = choose_text(request, candidates, corpus)
    second = None
    if second_text is not None:
        other = read_corpus(second_text)
        with report_waiting(reporter, f"tokenizing {other.name}"):
            second = tokenize(stack, other, *chosen.amount(request), batch_tokens=size or BATCH_TOKENS, seed=seed)
    parts = split_text(chosen.data, seed)
    return PreparedSearch(
        stack=stack,
        settings=requested.resolve(chosen.options.get("method"), chosen.options.get("width")),
        costs=costs,
        space=space,
        chosen=chosen,
        parts=parts,
        rungs=split_rungs(parts["search"], seed),
        second=second,
        setting=setting,
        in_bfloat16=compares_in_bfloat16,
    )


def _list_smaller(requested: SearchSettings, stack: Stack) -> list[dict[str, Any]]:
    """List changes of the settings that make the search cheaper, in order of decreasing cost."""
    if requested.method != "auto" or requested.width != WIDTH:
        return [{}]
    removes = requested.edits == ("drop",) and not _other_models(stack) and not requested.budget.fits_original
    return [{}, {"width": 1}, *([{"method": "one-shot"}] if removes else [])]


def describe_run(prepared: PreparedSearch, size: int | None) -> Manifest:
    """Return the manifest. Its field `families` holds the search settings, not plan families."""
    stack, settings, second = prepared.stack, prepared.settings, prepared.second
    timed = (str(prepared.setting),) if settings.is_timed else ()
    others = (f"{name}:{weight_hash(stack.sources[name].model)[:16]}" for name in _other_models(stack))
    how = (str(settings.budget), *settings.edits, settings.method, f"width:{settings.width}")
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
            "candidates are compared in bfloat16, held-out text is evaluated in float32 (to use float32 for both, pass "
            "--dtype float32)"
        )
    lines.append(f"{describe_parts(prepared.parts)}; stages of the search text: {len(prepared.rungs)}")
    if prepared.second is not None:
        lines.append(f"second corpus: {describe_data(prepared.second)}")
    if settings.method == "greedy" and settings.budget.unit != "ms":
        bound = estimate_worst_case(stack, settings, prepared.rungs, prepared.space)
        lines.append(
            f"search: at most {bound.layer_tokens:,} evaluations of layers and {bound.head_tokens:,} of the head, "
            "counted per token"
        )
    return lines


def expected_work(prepared: PreparedSearch) -> PlannedWork:
    """Return the expected work, which is unknown for an interrupted search."""
    stack, settings, text = prepared.stack, prepared.settings, prepared.chosen.data

    def count_remaining(_: Path, run: Run | None) -> Remaining | None:
        if run is not None and run.store.count_losses():
            return None
        cost = estimate_search(stack, settings, prepared.costs, prepared.space, text)
        return remaining_passes(stack, text, cost, pace=prepared.chosen.seconds)

    return PlannedWork(count_remaining)


def time_layers(prepared: PreparedSearch) -> RowsTask:
    setting = str(prepared.setting)
    return RowsTask(
        vocab.LATENCY,
        lambda: latency_rows(measure_milliseconds(prepared.stack, prepared.setting)[0], setting),
        f"timing every layer: {setting}",
        lambda row: row.plan is None,
    )


def open_evaluator(
    session: Study,
    stack: Stack,
    name: str,
    rungs: Sequence[EvalData],
    most: SearchCost,
    *,
    in_bfloat16: bool = False,
) -> GraphEvaluator:
    """Return an evaluator on the text `name` that stores its losses. Progress is reported relative to `most`."""
    prefix, head, began = f"{name}/", head_cost_in_layers(stack), time.monotonic()
    stored = [row for row in session.store.losses() if row.task.startswith(prefix)]

    def watch(spent: SearchCost) -> None:
        done, due = (each.layer_tokens + head * each.head_tokens for each in (spent, most))
        share = min(1.0, done / due)
        session.reporter.progress(name, share, (time.monotonic() - began) * (1 - share) / share)

    return GraphEvaluator(stack, rungs, session.store.add_losses, stored, prefix, watch, in_bfloat16=in_bfloat16)


def find_plans(prepared: PreparedSearch, session: Study, table: Sequence[Score], reporter: Reporter) -> SearchOutcome:
    """Run the rounds on the search text. If layers were timed, `table` has their milliseconds."""
    stack, settings, is_new = prepared.stack, prepared.settings, not session.store.count_losses()
    costs = replace(prepared.costs, ms=read_cost_table(table)) if table else prepared.costs
    began = time.perf_counter()
    space = build_space(stack, settings, costs)
    most = estimate_worst_case(stack, settings, prepared.rungs, space)
    searched = open_evaluator(session, stack, "search", prepared.rungs, most, in_bfloat16=prepared.in_bfloat16)
    mean_losses(searched, [space.original], space.original)
    shrinks = not space.allows(space.original)
    controls = _measure_controls(prepared, searched, space) if shrinks else {}
    steps = []
    for step in _rounds(settings, searched, space, controls):
        steps.append(step)
        reporter.log(round_sentence(len(steps), step, searched.mean_losses().get(space.original)))
    best = list(rank_plans(steps, space))
    changes = [plan for plan in best if plan != space.original]
    if not shrinks and changes:
        controls = {vocab.BEST_CHANGE: changes[0]}
    seconds = time.perf_counter() - began
    reporter.log(cost_sentence(searched.spent, seconds))
    losses, fronts = searched.mean_losses(), dict[Unit, list[Plan]]()
    for unit in list_units(settings):
        points = compute_front(losses, partial(costs.compute, unit=unit))
        fronts[unit] = [point.plan for point in thin_out(points, MAX_REPORTED)]
    return SearchOutcome(
        space=space,
        costs=costs,
        searched=searched,
        steps=steps,
        finalists=best[: settings.width],
        controls=controls,
        random=draw_random_plans(space, RANDOM_SETS, settings.seed) if shrinks else [],
        fronts=fronts,
        seconds=seconds,
        is_new=is_new,
    )


def list_units(settings: SearchSettings) -> tuple[Unit, ...]:
    return tuple(unit for unit in UNITS if unit != "ms" or settings.is_timed)


def select_plan(
    prepared: PreparedSearch, session: Study, outcome: SearchOutcome, reporter: Reporter
) -> tuple[Plan, list[Score]]:
    """Return the finalist or control with the lowest loss on the selection text, and the rows of these plans."""
    space, part, original = outcome.space, prepared.parts["select"], outcome.space.original
    plans = [each for each in dict.fromkeys([*outcome.finalists, *outcome.controls.values()]) if space.allows(each)]
    most = count_plans(prepared.stack, 1 + len(plans), part)
    select = open_evaluator(session, prepared.stack, "select", [part], most)
    means = mean_losses(select, [*plans, original], original)
    if not space.allows(original):
        del means[original]
    selected = min(means, key=lambda plan: means[plan])
    reporter.log(f"selected among {len(means)} plans on the selection text: {selected}")
    return selected, list(compute_loss_changes(select.losses([original, *plans]), original, "select", seed=0))


def confirm_plans(
    prepared: PreparedSearch, session: Study, outcome: SearchOutcome, selected: Plan, reporter: Reporter
) -> list[Score]:
    """Evaluate the selected plan, the plans of the Pareto fronts and the controls on held-out text."""
    stack, settings = prepared.stack, prepared.settings
    rows = list[Score]()
    second = () if prepared.second is None else (("second", prepared.second),)
    for name, data in (("report", prepared.parts["report"]), *second):
        reporter.log(f"evaluating the selected plan on {HELD_OUT_NAMES[name]}")
        most = estimate_confirmation(stack, settings, outcome.costs, outcome.space, data)
        held_out = open_evaluator(session, stack, name, [data], most)
        rows += _confirm_on(held_out, name, outcome, selected, settings.seed)
    return rows


def describe_plans(prepared: PreparedSearch, outcome: SearchOutcome, selected: Plan) -> list[Score]:
    """Return rows for the selected plan, the Pareto fronts and the controls, and the bits of their layers."""
    stack, settings, searched = prepared.stack, prepared.settings, outcome.searched
    members = [(unit, plan) for unit, plans in outcome.fronts.items() for plan in plans]
    draws = enumerate(outcome.random, start=1)
    rows = [
        Score(
            vocab.SEARCH,
            vocab.CHOSEN,
            1.0,
            plan=str(selected),
            unit=settings.budget.unit,
            against=str(settings.budget),
        ),
        *(Score(vocab.SEARCH, vocab.FRONT, 1.0, plan=str(plan), unit=unit) for unit, plan in members),
        *(
            Score(vocab.SEARCH, vocab.CONTROL_PLAN, 1.0, plan=str(plan), variant=name)
            for name, plan in outcome.controls.items()
        ),
        *(
            Score(vocab.SEARCH, vocab.CONTROL_PLAN, float(draw), plan=str(plan), variant=RANDOM, seed=draw)
            for draw, plan in draws
        ),
    ]
    if BITS in settings.edits:
        rows += allocation_rows(stack, outcome.costs, {vocab.CHOSEN: selected, **outcome.controls})
        alone = [each for each in families.bits(stack.depth) if each.plan in searched.mean_losses()]
        losses_alone = searched.losses([outcome.space.original, *(each.plan for each in alone)])
        rows += contrast_quantized_layers(losses_alone, plan_records(alone), stack.depth, seed=settings.seed)
    return rows


def keep_costs(outcome: SearchOutcome) -> RowsTask:
    """Return the task that stores the cost of the search. A resumed search has no cost."""
    return RowsTask(
        "run",
        lambda: cost_rows(outcome.searched.spent, outcome.seconds) if outcome.is_new else [],
        is_own=lambda row: row.section == "search",
    )


def continue_text(prepared: PreparedSearch, selected: Plan) -> dict[str, Sequence[str]]:
    stack, data = prepared.stack, prepared.parts["report"]
    if stack.tokenizer is None or data.objective != "next_token":
        return {CONTINUATION: []}
    prompt = stack.tokenizer.decode(data.windows[0].ids[:PROMPT], skip_special_tokens=True)
    plans = list(dict.fromkeys([Plan.identity(stack.depth), selected]))
    with suppress(LayerwiseError):  # some models cannot generate
        return {CONTINUATION: [each.note().text for each in continue_prompts(stack, plans, [prompt], NEW_TOKENS)]}
    return {CONTINUATION: []}


def build_space(stack: Stack, settings: SearchSettings, costs: PlanCosts, instead: Budget | None = None) -> Space:
    """Return the search space within the budget `instead` (default: that of `settings`)."""
    budget, edits = instead or settings.budget, settings.edits
    if BITS in edits:
        stack.check(assign_uniform(stack.depth, SMALLEST_TYPE))
    original = costs.compute(Plan.identity(stack.depth), budget.unit)
    limit, others = budget.limit(original), _other_models(stack)
    if limit >= original and set(edits) <= {*CHEAPER_EDITS, BITS} and not others:
        raise OptionError(
            f"--budget must be below the cost of the original model, {original:g} {budget.unit}, got {budget}. Pass a "
            "smaller one."
        )
    max_repeat = MAX_REPEAT if set(edits) & {*CHEAPER_EDITS, BITS} else stack.depth
    return Space(stack.depth, edits, lambda plan: costs.compute(plan, budget.unit), limit, others, max_repeat)


def _other_models(stack: Stack) -> tuple[str, ...]:
    return tuple(name for name, source in stack.sources.items() if source.model is not stack.model)


def draw_random_plans(space: Space, count: int, seed: int) -> list[Plan]:
    allocations = draw_random_allocations(space, count, seed) if BITS in space.edits else []
    return allocations or (draw_random_sets(space, count, seed) if space.edits != (BITS,) else [])


def _measure_controls(prepared: PreparedSearch, searched: GraphEvaluator, space: Space) -> dict[str, Plan]:
    scores, controls = measure_turning(prepared.stack, prepared.rungs), dict[str, Plan]()
    if space.edits != (BITS,):
        controls |= build_one_shot_plans(space, scores, measure_skip_effects(searched, space))
    if BITS in space.edits:
        controls |= rule_controls(prepared.stack, space, scores)
    mean_losses(searched, [*controls.values(), space.original], space.original)
    return controls


def _rounds(
    settings: SearchSettings, searched: Evaluator, space: Space, controls: Mapping[str, Plan]
) -> Iterator[SearchStep]:
    if BITS in space.edits:
        yield from allocate(searched, space, controls, width=settings.width)
    elif settings.method == "greedy":
        yield from greedy(searched, space, width=settings.width)
    elif settings.method == "evolve":
        yield from evolve(searched, space, seed=settings.seed)
    else:
        losses = mean_losses(searched, list(controls.values()), space.original)
        yield SearchStep("one-shot", Round(dict(sorted(losses.items(), key=lambda each: each[1])), len(losses), 0, 0))


def _confirm_on(
    held_out: GraphEvaluator, name: str, outcome: SearchOutcome, selected: Plan, seed: int
) -> Iterator[Score]:
    original, searched, controls, random = outcome.space.original, outcome.searched, outcome.controls, outcome.random
    fronts = (plan for plans in outcome.fronts.values() for plan in plans)
    plans = list(dict.fromkeys([original, selected, *fronts, *controls.values()]))
    mean_losses(held_out, list(dict.fromkeys([*plans, *random])), original)
    yield from compute_loss_changes(held_out.losses(plans), original, name, seed=seed)
    compared = held_out.losses([selected, *controls.values(), *random])
    yield from compare_controls(compared, selected, controls, random, name, seed=seed)
    if name == "report":
        losses = searched.mean_losses()
        for plan in plans[1:]:
            if plan in losses:
                pair = [original, plan]
                yield from compute_selection_gap(searched.losses(pair), held_out.losses(pair), original, plan)


def check_times(prepared: PreparedSearch, outcome: SearchOutcome, selected: Plan, reporter: Reporter) -> list[Score]:
    """Time the original model and the selected plan, unless it has sublayers or quantized layers."""
    if any(step.sublayer is not None or step.source is not None for step in selected.steps()):
        reporter.log(
            "milliseconds of the selected plan are predicted, not measured, because layerwise runs sublayers and "
            "quantized layers no faster than full layers"
        )
        return []
    _, times = measure_milliseconds(prepared.stack, prepared.setting, [Plan.identity(prepared.stack.depth), selected])
    return checked_latency_rows(times, outcome.costs, str(prepared.setting))


def search_rows(prepared: PreparedSearch, outcome: SearchOutcome) -> list[Score]:
    losses, original = outcome.searched.mean_losses(), outcome.space.original
    units, rows = list_units(prepared.settings), list[Score]()
    for plan in sorted(losses, key=str):
        if plan != original:
            rows.append(
                Score(vocab.SEARCH, vocab.DELTA, losses[plan] - losses[original], task=vocab.SEARCH, plan=str(plan))
            )
        costs = {unit: outcome.costs.compute(plan, unit) for unit in units}
        rows += [Score(vocab.SEARCH, vocab.COST, cost, plan=str(plan), unit=unit) for unit, cost in costs.items()]
    return rows


def allocation_rows(stack: Stack, costs: PlanCosts, plans: Mapping[str, Plan]) -> list[Score]:
    """Return the bits per weight of each layer in each plan. The column `condition` is the quantization type."""
    weights = [sum(each.numel() for each in stack.block(layer).parameters()) for layer in range(stack.depth)]
    return [
        Score(
            vocab.SEARCH,
            vocab.BITS,
            8 * costs.bytes.lookup((step.layer, step.sublayer), step.source) / weights[step.layer],
            layer=step.layer,
            plan=str(plan),
            variant=name,
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


def round_sentence(number: int, step: SearchStep, original: float | None) -> str:
    result = step.round
    loss = result.losses[result.best]
    change = f"{loss:.4f}" if original is None else f"{loss - original:+.4f}"
    removed = f" ({result.worse} eliminated by test, {result.ranked} by rank)" if result.worse + result.ranked else ""
    candidates = f"{result.candidates} candidates{removed}"
    return f"round {number}, {step.kind}: {candidates}; best {result.best}, {change} nats/token"


def latency_rows(table: CostTable, setting: str) -> list[Score]:
    rows = [
        Score(vocab.LATENCY, vocab.MILLISECONDS, value, layer=layer, part=half, condition=setting)
        for (layer, half), value in table.pieces.items()
    ]
    return [*rows, Score(vocab.LATENCY, vocab.MILLISECONDS, table.rest, part=vocab.REST, condition=setting)]


def read_cost_table(rows: Iterable[Score]) -> CostTable:
    times = Rows(rows).where(metric=vocab.MILLISECONDS)
    pieces: dict[Piece, float] = {}
    for row in times.where(layer=PRESENT):
        pieces[row.layer or 0, next((half for half in SUBLAYERS if half == row.part), None)] = row.value
    return CostTable(pieces, times.where(part=vocab.REST)[0].value)


def checked_latency_rows(times: Mapping[Plan, float], costs: PlanCosts, setting: str) -> list[Score]:
    return [
        Score(vocab.LATENCY, metric, value, plan=str(plan), condition=setting)
        for plan, measured in times.items()
        for metric, value in (("predicted", costs.compute(plan, "ms")), ("measured", measured))
    ]


def cost_rows(spent: SearchCost, seconds: float) -> list[Score]:
    figures = {
        "layer_tokens": float(spent.layer_tokens),
        "head_tokens": float(spent.head_tokens),
        "naive_layer_tokens": float(spent.naive),
        "seconds": seconds,
    }
    if spent.layer_tokens:
        figures["seconds_in_layers_and_heads"] = spent.layer_seconds + spent.head_seconds
    return [Score("run", name, value, section="search") for name, value in figures.items()]


def cost_sentence(spent: SearchCost, seconds: float) -> str:
    if not spent.layer_tokens:
        return f"search: everything was already computed, {format_duration(seconds)}"
    busy = (spent.layer_seconds + spent.head_seconds) / seconds
    return (
        f"search: {spent.layer_tokens:,} layer evaluations (counted per token), "
        f"{spent.naive / spent.layer_tokens:.1f}x fewer than if plans shared no work; {format_duration(seconds)}, "
        f"{busy:.0%} of it in the layers and the output head"
    )
