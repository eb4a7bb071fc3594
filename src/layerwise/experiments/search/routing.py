"""The steps of a routing: candidates are chosen on some of the questions, and routers are fitted and tested on others.

All that follows the losses is a function of them, of seeds and of the stored time of the router: a run that was killed
goes through the same steps again and computes the losses that are missing.

In all rows `task` is the task set that is asked, and `condition` the other set that a router was fitted to.

route          arm: `accuracy` (`nats`), the mean with its interval; `accuracy_gain`, the router's less the arm's, with
               p and mde; `accuracy_layers` of the router
route_seed     arm, seed: the same means, and the gains, of one division
route_curve    arm: `accuracy` and `accuracy_layers` at one of several budgets (`amount` is its number)
route_plan     plan: its `accuracy` with interval, and its `layers`
route_share    plan: the `share` of the questions of one task of the set (`condition`) that the router gives the plan
route_time     of the router: `ms`, `layers`, and `tokens` of the prompts; `layer_ms`, what a layer takes
route_verdict  of the router, metric the decision: the gain over fixed plans; and `margin` and `limit` of the score that
               is judged (`condition`)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np

from layerwise.errors import DataError, MeasureError, OptionError
from layerwise.experiments.engines.call import CallUnit
from layerwise.experiments.engines.losses import LossesUnit
from layerwise.experiments.engines.steps import Completed, Outline, Steps
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.opening import described, open_named, size_row, task_digest
from layerwise.experiments.options.common import BATCH_TOKENS
from layerwise.experiments.reporter import Reporter, describe_model
from layerwise.experiments.result import ROUTER_FILE
from layerwise.experiments.search.config import Routing
from layerwise.measure.interventions.sweep import cost_estimate
from layerwise.measure.stats.statistics import Numbers, student_interval
from layerwise.plan import Plan
from layerwise.results import Manifest, Rows, Score
from layerwise.results import vocabulary as vocab
from layerwise.search.budget import Budget
from layerwise.search.routing import Objective
from layerwise.search.routing.candidates import by_cost, candidate_plans, keeps
from layerwise.search.routing.questions import Document, TaskSet, read_task_set
from layerwise.search.routing.router import RoutingTable, layers_of, prompt_features, router_time
from layerwise.search.routing.trial import LAYERS, RoutedQuestions, RoutingDivision, verdict_rows
from layerwise.stack import Stack, weight_hash

BUDGETS = 5
"""Points of the router in the picture, from the cheapest candidate to the model as trained."""

Answers = Callable[[TaskSet, Sequence[Document], Sequence[Plan], str], dict[Objective, Numbers]]
"""From a task set, some of its questions, plans and a label to what `TaskSet.judged` gives."""


def routing(config: Routing, reporter: Reporter, inputs: Inputs) -> Steps:
    """Choose the candidates, sweep them, fit and test routers, and keep the one that is fitted to all questions.

    Raises what `read_task_set` does, `OptionError` for a prefix or a plan that the model has no room for, and
    `MeasureError` where a set has no score of the kind that is judged.
    """
    stack = inputs.stack or open_named(config, reporter)
    given = _given_plans(config, stack)
    limit = Budget.parse(config.budget).limit(stack.depth)
    sets = _task_sets(config, stack)
    candidates = partial(
        candidate_plans,
        depth=stack.depth,
        prefix=config.prefix,
        moves=config.checked_moves,
        width=config.width,
        given=given,
    )

    def says() -> Iterator[str]:
        yield describe_model(stack)
        for each in sets:
            yield (
                f"{each.name}: {len(each.choosing):,} questions choose candidates, {len(each.routing):,} fit and test "
                "routers"
            )
        tried: list[Plan] = []

        def unmeasured(plans: Sequence[Plan]) -> dict[Plan, Numbers]:
            tried.extend(plans)
            return dict.fromkeys(plans, np.zeros(1))

        kept = candidates(unmeasured)
        layers = 0
        for each in sets:
            layers += cost_estimate(stack, tried, each.part(each.choosing)).layer_tokens
            layers += cost_estimate(stack, kept, each.part(each.routing)).layer_tokens * len(sets)
        yield (
            f"candidates: {len(tried):,} plans are tried on each task set, {len(kept):,} or so kept; about {layers:,} "
            "layer evaluations x tokens"
        )
        yield f"mean layers: {limit:g} at most of {stack.depth}, the router's own time among them"

    session = yield Outline(_manifest(config, stack, sets, given), says)
    losses = yield from LossesUnit()

    def answers(
        tasks: TaskSet, documents: Sequence[Document], plans: Sequence[Plan], label: str
    ) -> dict[Objective, Numbers]:
        """Plans without finite losses are left out, unless it is the model as trained."""
        try:
            losses.sweep(stack, plans, tasks.part(documents), label)
        except MeasureError as error:
            trained = tasks.judged(documents, [Plan.identity(stack.depth)], losses.rows)
            if not np.isfinite(trained["accuracy"]).all():
                raise
            reporter.log(f"left out: {error}")
        return tasks.judged(documents, plans, losses.rows)

    plans = by_cost(plan for each in sets for plan in candidates(partial(_choosing_scores, answers, each)))
    reporter.log(f"{len(plans)} candidates: {'; '.join(map(str, plans))}")
    tables = _tables(config, stack, answers, sets, plans)
    judged = [tables[each.name, config.objective] for each in sets]
    timed = yield from CallUnit(
        vocab.ROUTE_TIME,
        lambda: router_time(stack, judged[0].router(), sets[0].routing_prompts),
        "timing the router, and a layer",
    )
    own = next(row.value for row in timed if row.metric == "layers")
    rows: list[Score] = []
    for (name, objective), table in tables.items():
        reporter.log(f"routers of {name}, {objective}: {config.seeds} seeds")
        rows += _in_domain(config, stack.depth, name, objective, table, limit, own)
    for (fitted, objective), (tested, other) in permutations(tables, 2):
        if objective == other:
            division = RoutingDivision.fitted_to(tables[fitted, objective], tables[tested, objective], config.seed)
            rows += division.within(limit, own).rows(vocab.ROUTE, objective, task=tested, condition=fitted)
    features, scores = (np.concatenate([getattr(table, name) for table in judged]) for name in ("features", "scores"))
    whole = replace(judged[0], features=features, scores=scores)
    whole.router(limit - own).save(session.folder / ROUTER_FILE)
    verdicts = verdict_rows(Rows(rows), config.objective, config.margin, limit)
    return Completed([*rows, size_row(stack), *verdicts])


def _given_plans(config: Routing, stack: Stack) -> tuple[Plan, ...]:
    given = tuple(map(Plan.parse, config.plan))
    if config.prefix > stack.depth // 2:
        raise OptionError(f"--prefix {config.prefix}: at most half of {stack.depth} layers can be kept by all plans")
    for plan in given:
        stack.check(plan)
        if not keeps(plan, config.prefix):
            raise OptionError(f"--plan {plan} does not begin with {Plan.identity(config.prefix)}: lower --prefix")
    return given


def _task_sets(config: Routing, stack: Stack) -> list[TaskSet]:
    sets = [
        read_task_set(
            stack,
            name,
            folder=config.task_folder,
            limit=config.task_limit,
            length=config.max_length,
            batch_tokens=config.batch_tokens or BATCH_TOKENS,
            seed=config.seed,
        )
        for name in config.task_names
    ]
    documents = [document for each in sets for document in each.prompts]
    if len(set(documents)) < len(documents) or len({each.name for each in sets}) < len(sets):
        raise DataError("two of the task sets share a name or a question; give their files and documents other names")
    return sets


def _manifest(config: Routing, stack: Stack, sets: Sequence[TaskSet], given: Sequence[Plan]) -> Manifest:
    digest, windows = hashlib.sha256(), [window for each in sets for window in each.data.windows]
    for window in windows:
        digest.update(repr((window.task, window.document, window.ids, window.scored_from)).encode())
    folder = () if config.task_folder is None else (f"tasks:{task_digest(config.task_folder)}",)
    return described(
        stack,
        weight_hash(stack.model),
        corpus="; ".join(config.task_names),
        corpus_hash=digest.hexdigest(),
        documents=sum(len(each.prompts) for each in sets),
        tokens=sum(window.scored for window in windows),
        window=max(len(window.ids) for window in windows),
        families=(
            "route",
            f"prefix:{config.prefix}",
            *config.checked_moves,
            f"width:{config.width}",
            *map(str, given),
            config.budget,
            config.objective,
            f"margin:{config.margin}",
            f"seeds:{config.seeds}",
        ),
        tasks=(*config.task_names, *folder),
        seed=config.seed,
        settings={"batch_tokens": config.batch_tokens or BATCH_TOKENS},
    )


def _choosing_scores(answers: Answers, tasks: TaskSet, plans: Sequence[Plan]) -> dict[Plan, Numbers]:
    """The scores by which a task set chooses its candidates: log-likelihoods where there are any."""
    outcome = answers(tasks, tasks.choosing, plans, f"candidates of {tasks.name}")
    scores = outcome["accuracy"] if np.isnan(outcome["nats"]).all() else outcome["nats"]
    return {plan: scores[:, at] for at, plan in enumerate(plans) if np.isfinite(scores[:, at]).all()}


def _tables(
    config: Routing, stack: Stack, answers: Answers, sets: Sequence[TaskSet], plans: tuple[Plan, ...]
) -> Mapping[tuple[str, Objective], RoutingTable]:
    """The tables of every task set and score; a plan that failed on one set is left out of all."""
    outcomes = [answers(each, each.routing, plans, f"questions of {each.name}") for each in sets]
    finite = np.all([np.isfinite(outcome["accuracy"]).all(axis=0) for outcome in outcomes], axis=0)
    kept = tuple(plan for plan, good in zip(plans, finite, strict=True) if good)
    tables: dict[tuple[str, Objective], RoutingTable] = {}
    for each, outcome in zip(sets, outcomes, strict=True):
        features = prompt_features(stack, each.routing_prompts, config.prefix)
        kinds = np.array([task for task, _ in each.routing])
        for objective, scores in outcome.items():
            if np.isfinite(scores[:, finite]).all():
                tables[each.name, objective] = RoutingTable(kept, kinds, scores[:, finite], features, config.prefix)
        if (each.name, config.objective) not in tables:
            raise MeasureError(f"{each.name} is judged by right answers alone; leave --objective nats out")
    return tables


def _in_domain(
    config: Routing, depth: int, name: str, objective: Objective, table: RoutingTable, limit: float, own: float
) -> Iterator[Score]:
    """Every arm on a task set, over divisions of its questions; the router's time is worth `own` layers."""
    divisions = [RoutingDivision.folds(table, config.seed + number) for number in range(config.seeds)]
    trials = [division.within(limit, own) for division in divisions]
    whole = RoutedQuestions.combined(trials)
    yield from whole.rows(vocab.ROUTE, objective, task=name)
    for seed, trial in enumerate(trials):  # without intervals: those over seeds are of the same questions
        for row in trial.rows(vocab.ROUTE_SEED, objective, task=name, seed=seed):
            if row.metric != f"{objective}{LAYERS}":
                yield replace(row, low=None, high=None, p=None, mde=None)
    count, plans, layers = len(table.scores), list(map(str, table.plans)), layers_of(table.plans)
    for plan, mean in zip(plans, student_interval(table.scores.T, np.ones(count)).each(), strict=True):
        yield Score(vocab.ROUTE_PLAN, objective, *mean.row(), documents=count, task=name, plan=plan)
    if objective == config.objective:
        for kind, shares in whole.shares.items():
            for plan, share in zip(plans, shares.tolist(), strict=True):
                yield Score(vocab.ROUTE_SHARE, "share", share, task=name, condition=kind, plan=plan)
        for plan, evaluations in zip(plans, layers.tolist(), strict=True):
            yield Score(vocab.ROUTE_PLAN, "layers", evaluations, task=name, plan=plan)
    for number, most in enumerate(np.linspace(layers.min() + own, depth, BUDGETS)):
        at_most = RoutedQuestions.combined([division.within(float(most), own) for division in divisions])
        yield from at_most.rows(vocab.ROUTE_CURVE, objective, gains=False, task=name, amount=number)
