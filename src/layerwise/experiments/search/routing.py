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
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from layerwise.errors import DataError, MeasureError, OptionError
from layerwise.experiments.engines.call import CallUnit
from layerwise.experiments.engines.losses import KeptLosses, LossesUnit
from layerwise.experiments.engines.steps import Completed, Outline, Steps
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.opening import described, open_named, size_row, task_digest
from layerwise.experiments.options.common import BATCH_TOKENS
from layerwise.experiments.reporter import Reporter, describe_model
from layerwise.experiments.result import ROUTER_FILE
from layerwise.experiments.search.config import OBJECTIVES, Objective, Routing
from layerwise.measure.interventions.sweep import cost_estimate
from layerwise.measure.stats.grid import WHOLE
from layerwise.measure.stats.statistics import Numbers, student_interval
from layerwise.measure.stats.strata import shuffled
from layerwise.plan import Plan
from layerwise.results import Manifest, Rows, Score
from layerwise.results import vocabulary as vocab
from layerwise.search.budget import Budget
from layerwise.search.routing.candidates import candidate_plans, keeps
from layerwise.search.routing.questions import Document, TaskSet, read_task_set
from layerwise.search.routing.router import PlanRouter, fit_router, layers_of, prompt_features, router_time
from layerwise.search.routing.trial import RoutedQuestions, RoutingDivision, RoutingTable, pooled, routed
from layerwise.search.routing.verdict import RoutingCriterion, adjusted, gain_rows
from layerwise.stack import Stack, weight_hash

CHOOSING = 5
"""One question in so many chooses the candidates."""

BUDGETS = 5
"""Points of the router in the picture, from the cheapest candidate to the model as trained."""

Tables = Mapping[tuple[str, Objective], RoutingTable]


@dataclass(frozen=True)
class DividedSet:
    """A task set with its questions: those that choose candidates, and those that fit and test routers."""

    tasks: TaskSet
    choosing: tuple[Document, ...]
    routing: tuple[Document, ...]

    @classmethod
    def of(cls, tasks: TaskSet, seed: int) -> DividedSet:
        """A fifth of every task chooses."""
        order = [(task, document) for task, document, _ in shuffled(((*each, WHOLE) for each in tasks.prompts), seed)]
        return cls(tasks, tuple(order[::CHOOSING]), tuple(sorted(set(order) - set(order[::CHOOSING]))))

    @property
    def name(self) -> str:
        """What the set is called."""
        return self.tasks.name


def routing(config: Routing, reporter: Reporter, inputs: Inputs) -> Steps:
    """Choose the candidates, sweep them, fit and test routers, and keep the one that is fitted to all questions.

    Raises what `read_task_set` does, `OptionError` for a prefix or a plan that the model has no room for, and
    `MeasureError` where a set has no score of the kind that is judged.
    """
    stack = inputs.stack or open_named(config, reporter)
    given = _given_plans(config, stack)
    limit = Budget.parse(config.budget).limit(stack.depth)
    sets = _divided_sets(config, stack)
    names = [each.name for each in sets]
    candidates = partial(
        candidate_plans, depth=stack.depth, prefix=config.prefix, moves=config.checked_moves, width=config.width,
        given=given,
    )  # fmt: skip

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
            layers += cost_estimate(stack, tried, each.tasks.part(each.choosing)).layer_tokens
            layers += cost_estimate(stack, kept, each.tasks.part(each.routing)).layer_tokens * len(sets)
        yield (
            f"candidates: {len(tried):,} plans are tried on each task set, {len(kept):,} or so kept; about {layers:,} "
            "layer evaluations x tokens"
        )
        yield f"mean layers: {limit:g} at most of {stack.depth}, the router's own time among them"

    session = yield Outline(_manifest(config, stack, sets, given), says)
    losses = yield from LossesUnit(stack)
    plans = _chosen_candidates(stack, losses, sets, candidates, reporter)
    reporter.log(f"{len(plans)} candidates: {'; '.join(map(str, plans))}")
    for each in sets:
        _sweep(stack, losses, each.tasks, each.routing, plans, f"questions of {each.name}", reporter)
    tables = _tables(config, stack, losses, sets, plans)
    prompts = [sets[0].tasks.prompts[document] for document in sets[0].routing]
    first = tables[names[0], config.objective]
    timed = yield from CallUnit(
        vocab.ROUTE_TIME, lambda: router_time(stack, first.fit().router, prompts),
        "timing the router, and a layer",
    )  # fmt: skip
    layers = next(row.value for row in timed if row.metric == "layers")
    rows: list[Score] = []
    for (name, objective), table in tables.items():
        reporter.log(f"routers of {name}, {objective}: {config.seeds} seeds")
        rows += _in_domain(config, stack.depth, name, objective, table, limit, layers)
    pairs = list(permutations(names, 2))
    for fitted, tested in pairs:
        for objective in OBJECTIVES:
            if (fitted, objective) in tables and (tested, objective) in tables:
                both = tables[fitted, objective], tables[tested, objective]
                rows += _out_of_domain((fitted, tested), objective, *both, limit, layers, config.seed)
    router = _router(config, [tables[name, config.objective] for name in names], limit - layers)
    router.save(session.folder / ROUTER_FILE)
    of_arms = [row for row in rows if row.measure == vocab.ROUTE]
    verdicts = verdict_rows(
        of_arms, [[(None, name) for name in names], [*pairs]], config.objective, RoutingCriterion(config.margin), limit
    )  # fmt: skip
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


def _divided_sets(config: Routing, stack: Stack) -> list[DividedSet]:
    read = partial(
        read_task_set, stack, folder=config.task_folder, limit=config.task_limit, length=config.max_length,
        batch_tokens=config.batch_tokens or BATCH_TOKENS, seed=config.seed,
    )  # fmt: skip
    sets = [DividedSet.of(read(name), config.seed) for name in config.task_names]
    documents = [document for each in sets for document in each.tasks.prompts]
    if len(set(documents)) < len(documents) or len({each.name for each in sets}) < len(sets):
        raise DataError("two of the task sets share a name or a question; give their files and documents other names")
    return sets


def _manifest(config: Routing, stack: Stack, sets: Sequence[DividedSet], given: Sequence[Plan]) -> Manifest:
    digest, windows = hashlib.sha256(), [window for each in sets for window in each.tasks.data.windows]
    for window in windows:
        digest.update(repr((window.task, window.document, window.ids, window.scored_from)).encode())
    folder = () if config.task_folder is None else (f"tasks:{task_digest(config.task_folder)}",)
    return described(
        stack, weight_hash(stack.model), corpus="; ".join(config.task_names), corpus_hash=digest.hexdigest(),
        documents=sum(len(each.tasks.prompts) for each in sets), tokens=sum(window.scored for window in windows),
        window=max(len(window.ids) for window in windows),
        families=(
            "route", f"prefix:{config.prefix}", *config.checked_moves, f"width:{config.width}", *map(str, given),
            config.budget, config.objective, f"margin:{config.margin}", f"seeds:{config.seeds}",
        ),
        tasks=(*config.task_names, *folder), seed=config.seed,
        settings={"batch_tokens": config.batch_tokens or BATCH_TOKENS},
    )  # fmt: skip


def _sweep(
    stack: Stack, losses: KeptLosses, tasks: TaskSet, documents: Sequence[Document], plans: Sequence[Plan], label: str,
    reporter: Reporter,
) -> None:  # fmt: skip
    """Sweep plans over questions; one whose loss is not finite is left out, unless it is the model as trained."""
    try:
        losses.sweep(stack, plans, tasks.part(documents), label)
    except MeasureError as error:
        if not np.isfinite(tasks.judged(documents, [Plan.identity(stack.depth)], losses.rows).right).all():
            raise
        reporter.log(f"left out: {error}")


def _chosen_candidates(
    stack: Stack, losses: KeptLosses, sets: Sequence[DividedSet], candidates: Callable[..., Sequence[Plan]],
    reporter: Reporter,
) -> tuple[Plan, ...]:  # fmt: skip
    """The candidates of all task sets; each set chooses its own, and all are tried on every set."""
    kept: dict[Plan, None] = {}
    for each in sets:

        def measured(plans: Sequence[Plan], each: DividedSet = each) -> dict[Plan, Numbers]:
            _sweep(stack, losses, each.tasks, each.choosing, plans, f"candidates of {each.name}", reporter)
            outcome = each.tasks.judged(each.choosing, plans, losses.rows)
            scores = outcome.right if np.isnan(outcome.nats).all() else outcome.nats
            return {plan: scores[:, at] for at, plan in enumerate(plans) if np.isfinite(scores[:, at]).all()}

        kept |= dict.fromkeys(candidates(measured))
    return tuple(sorted(kept, key=lambda plan: (plan.cost().evaluations, str(plan))))


def _tables(
    config: Routing, stack: Stack, losses: KeptLosses, sets: Sequence[DividedSet], plans: tuple[Plan, ...]
) -> Tables:
    """The tables of every task set and score; a plan that failed on one set is left out of all."""
    outcomes = {each.name: each.tasks.judged(each.routing, plans, losses.rows) for each in sets}
    finite = np.all([np.isfinite(outcome.right).all(axis=0) for outcome in outcomes.values()], axis=0)
    kept = tuple(plan for plan, good in zip(plans, finite, strict=True) if good)
    tables: dict[tuple[str, Objective], RoutingTable] = {}
    for each in sets:
        prompts = [each.tasks.prompts[document] for document in each.routing]
        features = prompt_features(stack, prompts, config.prefix)
        kinds = np.array([task for task, _ in each.routing])
        outcome = outcomes[each.name]
        for objective, scores in zip(OBJECTIVES, (outcome.right, outcome.nats), strict=True):
            if np.isfinite(scores[:, finite]).all():
                tables[each.name, objective] = RoutingTable(kept, kinds, scores[:, finite], features, config.prefix)
        if (each.name, config.objective) not in tables:
            raise MeasureError(f"{each.name} is judged by right answers alone; leave --objective nats out")
    return tables


def _in_domain(
    config: Routing, depth: int, name: str, objective: Objective, table: RoutingTable, limit: float, layers: float
) -> Iterator[Score]:
    """Every arm on a task set, over divisions of its questions; `layers` are those that the router's time is worth."""
    divisions = [RoutingDivision.of(table, config.seed + number) for number in range(config.seeds)]
    trials = [division.within(limit, layers) for division in divisions]
    whole = pooled(trials)
    yield from arm_rows((None, name), objective, whole)
    for seed, trial in enumerate(trials):  # without intervals: those over seeds are of the same questions
        for metric, arms in ((objective, trial.scores), (f"{objective}_gain", trial.gains)):
            for arm, values in arms.items():
                about: dict[str, Any] = {"task": name, "arm": arm, "seed": seed, "documents": len(values)}
                yield Score(vocab.ROUTE_SEED, metric, float(values.mean()), **about)
    plans: list[dict[str, Any]] = [{"task": name, "plan": str(plan)} for plan in table.plans]
    yield from _means(vocab.ROUTE_PLAN, objective, table.scores.T, plans)
    if objective == config.objective:
        for kind, shares in whole.shares.items():
            for plan, share in zip(plans, shares.tolist(), strict=True):
                yield Score(vocab.ROUTE_SHARE, "share", share, condition=kind, **plan)
        for plan, count in zip(plans, layers_of(table.plans).tolist(), strict=True):
            yield Score(vocab.ROUTE_PLAN, "layers", count, **plan)
    for number, most in enumerate(np.linspace(layers_of(table.plans).min() + layers, depth, BUDGETS)):
        at_most = pooled([division.within(float(most), layers) for division in divisions])
        yield from _arm_means(vocab.ROUTE_CURVE, objective, at_most, task=name, amount=number)


def _out_of_domain(
    sets: Sets,
    objective: Objective,
    fitted: RoutingTable,
    test: RoutingTable,
    limit: float,
    layers: float,
    seed: int,
) -> list[Score]:
    """The router of all questions of one set on all questions of another."""
    router = fitted.fit().within(limit - layers)
    outcome = routed(router, fitted.scores.mean(axis=0), len(fitted.scores), test, layers, seed)
    return arm_rows(sets, objective, outcome)


def _router(config: Routing, tables: Sequence[RoutingTable], limit: float) -> PlanRouter:
    """The router to be used: fitted to all questions of all task sets."""
    features, scores = (np.concatenate([getattr(table, name) for table in tables]) for name in ("features", "scores"))
    return fit_router(features, scores, tables[0].plans, config.prefix).within(limit)


Sets = tuple[str | None, str]
"""The set that a router was fitted to, where that is another one, and the set that it is asked."""


def arm_rows(sets: Sets, metric: str, routed: RoutedQuestions) -> list[Score]:
    """Every arm's mean score, the router's mean layers, and its gain over every arm."""
    own = {"condition": sets[0], "task": sets[1]}
    gains = gain_rows(vocab.ROUTE, f"{metric}_gain", routed.gains, routed.inflation, **own)
    return [*_arm_means(vocab.ROUTE, metric, routed, **own), *gains]


def verdict_rows(
    rows: Sequence[Score], groups: Sequence[Sequence[Sets]], metric: str, criterion: RoutingCriterion, limit: float
) -> list[Score]:
    """The decisions on the gains among `rows`; p-values are corrected over the task sets of a group (Holm)."""
    made = [
        Score(vocab.ROUTE_VERDICT, "margin", criterion.margin, condition=metric),
        Score(vocab.ROUTE_VERDICT, "limit", limit, condition=metric),
    ]
    gains = Rows(rows).where(metric=f"{metric}_gain")
    for group in groups:
        fixed, permuted = (
            adjusted([gains.where(arm=arm, condition=fitted, task=task)[0] for fitted, task in group])
            for arm in ("fixed", "permuted")
        )
        for first, second in zip(fixed, permuted, strict=True):
            decision = criterion.concludes(first, second)
            made.append(replace(first, measure=vocab.ROUTE_VERDICT, arm=vocab.ROUTER, metric=decision))
    return made


def _arm_means(measure: str, metric: str, routed: RoutedQuestions, **columns: Any) -> list[Score]:
    arms = [{"arm": arm, **columns} for arm in routed.scores]
    means = _means(measure, metric, np.stack(list(routed.scores.values())), arms)
    return [*means, *_means(measure, f"{metric}_layers", routed.layers[None], [{"arm": vocab.ROUTER, **columns}])]


def _means(measure: str, metric: str, values: Numbers, columns: Sequence[dict[str, Any]]) -> list[Score]:
    """The mean of each row of (rows, questions), with Student's interval: nothing is decided by it."""
    means = student_interval(values, np.ones(values.shape[1])).each()
    return [
        Score(measure, metric, *mean.row(), documents=values.shape[1], **own)
        for mean, own in zip(means, columns, strict=True)
    ]
