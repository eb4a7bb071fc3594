"""A routing that is ready to run: the model open, the questions read and divided, and what a sweep of them costs.

A part of each task set chooses the candidates, the rest fits and tests routers. Every loss is stored as soon as it is
computed, and all that follows is a function of losses, seeds and the stored time of the router: one that was killed
goes through the same steps again and computes the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from layerwise.errors import DataError, MeasureError, OptionError
from layerwise.experiments.experiment import Prepared
from layerwise.experiments.options.text import BATCH_TOKENS
from layerwise.experiments.provenance import described, size_row, task_digest
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.routing import rows as made
from layerwise.experiments.routing.config import OBJECTIVES, Objective, Routing
from layerwise.experiments.routing.result import FILE
from layerwise.experiments.sentences import describe_model
from layerwise.measure.interventions.sweep import cost_estimate, sweep_into
from layerwise.measure.language.evaluation_data import shuffled
from layerwise.measure.stats.grid import WHOLE
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.results import Manifest, Run
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import (
    ROUTE,
    ROUTE_CURVE,
    ROUTE_PLAN,
    ROUTE_SEED,
    ROUTE_SHARE,
    ROUTE_TIME,
    ROUTE_VERDICT,
)
from layerwise.search.budget import Budget
from layerwise.search.routing.candidates import candidate_plans, keeps
from layerwise.search.routing.features import prompt_features
from layerwise.search.routing.questions import Document, RoutingOutcomes, TaskSet, read_task_set
from layerwise.search.routing.router import fit_router, layers_of
from layerwise.search.routing.router_time import router_time
from layerwise.search.routing.trial import RoutingDivision, RoutingTable, pooled, routed
from layerwise.search.routing.verdict import RoutingCriterion
from layerwise.stack import Stack, weight_hash

CHOOSING = 5
"""One question in so many chooses the candidates."""

BUDGETS = 5
"""Points of the router in the picture, from the cheapest candidate to the model as trained."""


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


class PreparedRouting(Prepared):
    """A routing whose model is open and whose questions are divided.

    Raises what `read_task_set` does, and `OptionError` for a prefix or a plan that the model has no room for.
    """

    def __init__(self, config: Routing, stack: Stack) -> None:
        self.config, self.stack = config, stack
        self.given = tuple(map(Plan.parse, config.plan))
        if config.prefix > stack.depth // 2:
            raise OptionError(
                f"--prefix {config.prefix}: at most half of {stack.depth} layers can be kept by all plans"
            )
        for plan in self.given:
            stack.check(plan)
            if not keeps(plan, config.prefix):
                raise OptionError(f"--plan {plan} does not begin with {Plan.identity(config.prefix)}: lower --prefix")
        self.limit = Budget.parse(config.budget).limit(stack.depth)
        self.sets = [DividedSet.of(self._read(name), config.seed) for name in config.task_names]
        self.names = [each.tasks.name for each in self.sets]
        documents = [document for each in self.sets for document in each.tasks.prompts]
        if len(set(documents)) < len(documents) or len(set(self.names)) < len(self.names):
            raise DataError(
                "two of the task sets share a name or a question; give their files and documents other names"
            )
        self.manifest = self._manifest()

    def _read(self, name: str) -> TaskSet:
        config = self.config
        return read_task_set(
            self.stack, name, folder=config.task_folder, limit=config.task_limit, length=config.max_length,
            batch_tokens=config.batch_tokens or BATCH_TOKENS, seed=config.seed,
        )  # fmt: skip

    def _manifest(self) -> Manifest:
        config = self.config
        digest, windows = hashlib.sha256(), [window for each in self.sets for window in each.tasks.data.windows]
        for window in windows:
            digest.update(repr((window.task, window.document, window.ids, window.scored_from)).encode())
        folder = () if config.task_folder is None else (f"tasks:{task_digest(config.task_folder)}",)
        return described(
            self.stack, weight_hash(self.stack.model), corpus="; ".join(config.task_names),
            corpus_hash=digest.hexdigest(), documents=sum(len(each.tasks.prompts) for each in self.sets),
            tokens=sum(window.scored for window in windows), window=max(len(window.ids) for window in windows),
            families=(
                "route", f"prefix:{config.prefix}", *config.checked_moves, f"width:{config.width}",
                *map(str, self.given),
                config.budget, config.objective, f"margin:{config.margin}", f"seeds:{config.seeds}",
            ),
            tasks=(*config.task_names, *folder), seed=config.seed,
            settings={"batch_tokens": config.batch_tokens or BATCH_TOKENS},
        )  # fmt: skip

    def describe(self) -> Iterator[str]:
        """The model, the questions, and what the sweeps over them cost."""
        yield describe_model(self.stack)
        for each in self.sets:
            yield (
                f"{each.tasks.name}: {len(each.choosing):,} questions choose candidates, {len(each.routing):,} fit and "
                "test routers"
            )
        tried: list[Plan] = []

        def unmeasured(plans: Sequence[Plan]) -> dict[Plan, Numbers]:
            tried.extend(plans)
            return dict.fromkeys(plans, np.zeros(1))

        kept = self._candidates(unmeasured)
        layers = 0
        for each in self.sets:
            layers += cost_estimate(self.stack, tried, each.tasks.part(each.choosing)).layer_tokens
            layers += cost_estimate(self.stack, kept, each.tasks.part(each.routing)).layer_tokens * len(self.sets)
        yield (
            f"candidates: {len(tried):,} plans are tried on each task set, {len(kept):,} or so kept; about {layers:,} "
            "layer evaluations x tokens"
        )
        yield f"mean layers: {self.limit:g} at most of {self.stack.depth}, the router's own time among them"

    def _candidates(self, measured: Any) -> tuple[Plan, ...]:
        config = self.config
        return candidate_plans(
            measured, self.stack.depth, config.prefix, config.checked_moves, config.width, self.given
        )

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Choose the candidates, sweep them, fit and test routers; what is stored is not computed again."""
        if run.store.scores(ROUTE_VERDICT):
            return
        losses = StoredLosses(self.stack, run, reporter)
        plans = self._chosen_candidates(losses, reporter)
        reporter.log(f"{len(plans)} candidates: {'; '.join(map(str, plans))}")
        for each in self.sets:
            losses.add(each.tasks, each.routing, plans, f"questions of {each.tasks.name}")
        tables = self._tables(losses, plans)
        time = self._time(run, reporter, tables)
        scores: dict[str, list[Score]] = {
            name: [] for name in (ROUTE, ROUTE_SEED, ROUTE_CURVE, ROUTE_PLAN, ROUTE_SHARE)
        }
        for (name, objective), table in tables.items():
            reporter.log(f"routers of {name}, {objective}: {self.config.seeds} seeds")
            for row in self._in_domain(name, objective, table, time):
                scores[row.measure].append(row)
        pairs = list(permutations(self.names, 2))
        for first, second in pairs:
            for objective in OBJECTIVES:
                fitted, test = tables.get((first, objective)), tables.get((second, objective))
                if fitted is not None and test is not None:
                    scores[ROUTE] += self._out_of_domain((first, second), objective, fitted, test, time)
        for measure, rows in scores.items():
            run.store.replace_scores(measure, rows)
        run.store.replace_scores("run", [size_row(self.stack)])
        self._save(run, tables, time)
        groups: list[list[made.Sets]] = [[(None, name) for name in self.names], [*pairs]]
        # Last, because these rows say that the routing is complete.
        verdicts = made.verdict_rows(
            scores[ROUTE], groups, self.config.objective, RoutingCriterion(self.config.margin), self.limit
        )
        run.store.replace_scores(ROUTE_VERDICT, verdicts)

    def _chosen_candidates(self, losses: StoredLosses, reporter: Reporter) -> tuple[Plan, ...]:
        """The candidates of all task sets; each set chooses its own, and all are tried on every set."""
        kept: dict[Plan, None] = {}
        for each in self.sets:

            def measured(plans: Sequence[Plan], each: DividedSet = each) -> dict[Plan, Numbers]:
                losses.add(each.tasks, each.choosing, plans, f"candidates of {each.tasks.name}")
                outcome = losses.judged(each.tasks, each.choosing, plans)
                scores = outcome.right if np.isnan(outcome.nats).all() else outcome.nats
                return {plan: scores[:, at] for at, plan in enumerate(plans) if np.isfinite(scores[:, at]).all()}

            kept |= dict.fromkeys(self._candidates(measured))
        return tuple(sorted(kept, key=lambda plan: (plan.cost().evaluations, str(plan))))

    def _tables(self, losses: StoredLosses, plans: tuple[Plan, ...]) -> dict[tuple[str, Objective], RoutingTable]:
        """The tables of every task set and score; a plan that failed on one set is left out of all.

        Raises `MeasureError` where a set has no score of the kind that is judged.
        """
        outcomes = {each.tasks.name: losses.judged(each.tasks, each.routing, plans) for each in self.sets}
        finite = np.all([np.isfinite(outcome.right).all(axis=0) for outcome in outcomes.values()], axis=0)
        kept = tuple(plan for plan, good in zip(plans, finite, strict=True) if good)
        tables: dict[tuple[str, Objective], RoutingTable] = {}
        for each in self.sets:
            prompts = [each.tasks.prompts[document] for document in each.routing]
            features = prompt_features(self.stack, prompts, self.config.prefix)
            kinds = np.array([task for task, _ in each.routing])
            outcome = outcomes[each.tasks.name]
            for objective, scores in zip(OBJECTIVES, (outcome.right, outcome.nats), strict=True):
                if np.isfinite(scores[:, finite]).all():
                    tables[each.tasks.name, objective] = RoutingTable(
                        kept, kinds, scores[:, finite], features, self.config.prefix
                    )
        for name in self.names:
            if (name, self.config.objective) not in tables:
                raise MeasureError(f"{name} is judged by right answers alone; leave --objective nats out")
        return tables

    def _time(self, run: Run, reporter: Reporter, tables: Mapping[tuple[str, Objective], RoutingTable]) -> float:
        """The router's time in layers, measured once in the life of a run."""
        stored = run.store.scores(ROUTE_TIME, metric="layers")
        if not stored:
            reporter.log("timing the router, and a layer")
            table = tables[self.names[0], self.config.objective]
            each = self.sets[0]
            prompts = [each.tasks.prompts[document] for document in each.routing]
            run.store.replace_scores(ROUTE_TIME, made.time_rows(router_time(self.stack, table.fit().router, prompts)))
            stored = run.store.scores(ROUTE_TIME, metric="layers")
        return stored[0].value

    def _in_domain(self, name: str, objective: Objective, table: RoutingTable, time: float) -> Iterator[Score]:
        seed = self.config.seed
        divisions = [RoutingDivision.of(table, seed + number) for number in range(self.config.seeds)]
        trials = [division.within(self.limit, time) for division in divisions]
        whole = pooled(trials)
        yield from made.arm_rows((None, name), objective, whole)
        yield from made.seed_rows(name, objective, trials)
        yield from made.plan_rows(name, objective, table.plans, table.scores)
        if objective == self.config.objective:
            yield from made.share_rows(name, table.plans, whole)
            yield from made.layer_rows(name, table.plans)
        layers = layers_of(table.plans)
        for number, limit in enumerate(np.linspace(layers.min() + time, self.stack.depth, BUDGETS)):
            at_limit = pooled([division.within(float(limit), time) for division in divisions])
            yield from made.curve_rows(name, objective, number, at_limit)

    def _out_of_domain(
        self, sets: made.Sets, objective: Objective, fitted: RoutingTable, test: RoutingTable, time: float
    ) -> list[Score]:
        """The router of all questions of one set on all questions of another."""
        router = fitted.fit().within(self.limit - time)
        outcome = routed(router, fitted.scores.mean(axis=0), len(fitted.scores), test, time, self.config.seed)
        return made.arm_rows(sets, objective, outcome)

    def _save(self, run: Run, tables: Mapping[tuple[str, Objective], RoutingTable], time: float) -> None:
        """The router to be used: fitted to all questions of all task sets."""
        own = [tables[name, self.config.objective] for name in self.names]
        features, scores = (np.concatenate([getattr(table, name) for table in own]) for name in ("features", "scores"))
        fit = fit_router(features, scores, own[0].plans, self.config.prefix)
        fit.within(self.limit - time).save(run.folder / FILE)


class StoredLosses:
    """The losses of a run, read once, added to by sweeps."""

    def __init__(self, stack: Stack, run: Run, reporter: Reporter) -> None:
        self.stack, self.store, self.reporter = stack, run.store, reporter
        self.rows: list[Loss] = list(run.store.losses())

    def add(self, tasks: TaskSet, documents: Sequence[Document], plans: Sequence[Plan], what: str) -> None:
        """Sweep plans over questions; what is stored already is not computed again."""

        def keep(rows: Sequence[Loss]) -> None:
            self.store.add_losses(rows)
            self.rows.extend(rows)

        try:
            sweep_into(
                keep, self.stack, plans, tasks.part(documents), finished=self.store.finished,
                progress=lambda meter, due: self.reporter.progress(
                    what, meter.head_tokens / max(1, due.head_tokens), meter.seconds_left(due)
                ),
            )  # fmt: skip
        except MeasureError as error:
            if not np.isfinite(self.judged(tasks, documents, [Plan.identity(self.stack.depth)]).right).all():
                raise
            self.reporter.log(f"left out: {error}")

    def judged(self, tasks: TaskSet, documents: Sequence[Document], plans: Sequence[Plan]) -> RoutingOutcomes:
        """What plans answered."""
        return tasks.judged(documents, plans, self.rows)
