"""Evaluations of `layerwise heal`: lm-eval tasks, minimal pairs and test data for every model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np

from layerwise.data.splits import Splits
from layerwise.data.suites.generated import SUITE as PAIRS
from layerwise.data.suites.generated import generate_pairs
from layerwise.data.suites.minimal_pairs import PairSet
from layerwise.errors import MeasureError
from layerwise.measure.contrasts.trainings import LinearEstimate
from layerwise.measure.interventions.accuracy import Predictions, evaluate
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.benchmark_requests import (
    BenchmarkRequests,
    RequestLikelihoods,
    build_requests,
    judge_plan,
)
from layerwise.measure.language.benchmarks import find_benchmarks
from layerwise.measure.language.evaluation_data import BATCH_TOKENS
from layerwise.measure.language.minimal_pairs import CHANCE, preferences
from layerwise.measure.language.pseudo_likelihood import SentenceScorer
from layerwise.measure.stats.effects import compute_effects
from layerwise.measure.stats.grid import Strata, arrange
from layerwise.measure.stats.statistics import Numbers, StratumLabels
from layerwise.plan import Plan
from layerwise.results import Loss
from layerwise.results.rows import BENCHMARK_TASK
from layerwise.runner.trainings import StoredEvaluation
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating


@dataclass(frozen=True)
class HealingBenchmarks:
    """Benchmarks for every model: `requests` of lm-eval tasks, and `suites` of minimal pairs."""

    requests: BenchmarkRequests | None
    suites: tuple[PairSet, ...]

    @classmethod
    def open(
        cls, tasks: Sequence[str], folder: Path | None, limit: int | None, stack: Stack, *, seed: int, fills_in: bool
    ) -> HealingBenchmarks | None:
        """Return the benchmarks named in `tasks`, or None if `tasks` is empty."""
        if not tasks:
            return None
        if stack.tokenizer is None:
            raise MeasureError("--tasks requires a tokenizer. Pass one with --tokenizer PATH.")
        named = [name for name in tasks if name != PAIRS]
        if named and fills_in:
            raise MeasureError(
                f"lm-eval tasks ({', '.join(named)}) require a causal language model, but {stack.source.name} is a "
                f"masked one. Pass --tasks {PAIRS}."
            )
        requests = None
        if named:
            benchmarks = find_benchmarks(named, folder, seed=seed)
            requests = build_requests(stack, benchmarks, batch_tokens=BATCH_TOKENS, limit=limit, seed=seed)
        suites = (generate_pairs().first(limit),) if PAIRS in tasks else ()
        return cls(requests, suites)

    @property
    def chance(self) -> Mapping[str, float]:
        requests = {} if self.requests is None else dict(self.requests.chance)
        return requests | {each.suite: CHANCE for each in self.suites}

    def describe(self) -> str:
        counts = []
        if self.requests is not None:
            documents: dict[str, set[int]] = {}
            for name, document, _ in self.requests.cells:
                documents.setdefault(name, set()).add(document)
            counts = [
                f"{name} ({len(documents[name]):,} questions)" if name in documents else f"{name} (written)"
                for name in self.requests.names
            ]
        counts += [f"{each.suite} ({len(each.pairs):,} pairs)" for each in self.suites]
        return f"benchmarks of every model: {', '.join(counts)}"

    def answer(self, stack: Stack, plan: Plan) -> dict[str, Predictions]:
        """Map each benchmark to its answers under a plan: 1 if correct, 0 if not, and 0.5 for a tied pair."""
        right: dict[str, list[float]] = {}
        if self.requests is not None:
            rows = judge_plan(stack, plan, self.requests, _likelihoods(stack, plan, self.requests)).rows
            for row in rows:
                right.setdefault(row.task.removeprefix(BENCHMARK_TASK).partition("/")[0], []).append(float(row.hits))
            lacking = [name for name in self.requests.names if name not in right]
            if lacking:
                raise MeasureError(f"{lacking[0]} has no accuracy to compare. Remove it from --tasks.")
        for suite in self.suites:
            scorer = SentenceScorer.from_model(stack.model, stack.tokenizer)
            with evaluating(stack.model), stack.under(plan):
                right[suite.suite] = list(preferences(scorer, suite.pairs))
        return {name: _predictions(np.array(values)) for name, values in right.items()}

    def evaluate(self, name: str, trained: str, plan: Plan, open_model: Callable[[Path], Stack]) -> StoredEvaluation:
        """Define the benchmark evaluation of a model. `trained` names its training run (empty for the base model)."""
        key = sha256(f"{self._digest}/{trained}/{plan}".encode()).hexdigest()[:16]

        def make(folder: Path) -> Survey:
            stack = open_model(folder)
            return Survey(stack.depth, self.answer(stack, plan))

        return StoredEvaluation(name, f"{FOLDER}/benchmarks-{key}.npz", make)

    @cached_property
    def _digest(self) -> str:
        windows = (
            () if self.requests is None or self.requests.likelihoods is None else self.requests.likelihoods.windows
        )
        questions = [(each.task, each.document, each.index, tuple(map(int, each.ids))) for each in windows]
        names = () if self.requests is None else (*self.requests.names, self.requests.limit)
        return sha256(repr((questions, names, [each.digest for each in self.suites])).encode()).hexdigest()


def _predictions(right: Numbers) -> Predictions:
    return Predictions(right, None, np.zeros_like(right), np.ones_like(right))


ALL = "all"
FOLDER = "outcomes"


def evaluate_test(
    name: str, trained: str, plan: Plan, open_model: Callable[[Path], Stack], splits: Splits, fills_in: bool
) -> StoredEvaluation:
    """Define the test evaluation of a model. `trained` names its training run (empty for the base model)."""
    key = sha256(f"{splits.digest}/{trained}/{plan}".encode()).hexdigest()[:16]

    def make(folder: Path) -> Survey:
        stack = open_model(folder)
        outcome = evaluate(stack, plan, splits.test, splits.collate, filled_in=fills_in)
        return Survey(stack.depth, {"test": outcome})

    return StoredEvaluation(name, f"{FOLDER}/{key}.npz", make)


class Outcomes:
    """Losses and accuracies of all models on the same documents (or windows, if documents are few), by task."""

    def __init__(self, splits: Splits, surveys: Mapping[str, Survey], seed: int = 0) -> None:
        windows = getattr(splits.test, "windows", None)
        self._cells = [(ALL, str(index), 0) for index in range(len(splits.test))]
        if windows is not None:
            self._cells = [(window.task, window.document, window.index) for window in windows]
        self._predictions = {name: survey.outcomes["test"] for name, survey in surveys.items()}
        self._seed = seed
        grid = arrange(loss for name in surveys for loss in self._losses(name))
        named = grid.tasks()
        self._grids = {ALL: grid} | ({task: grid.of_task(task) for task in named} if len(named) > 1 else {})
        answered = dict.fromkeys((ALL, *named), windows is not None)
        for window in windows or ():
            for task in (ALL, window.task):
                answered[task] = answered[task] and window.scored_from > 1
        self._answered = answered

    def _losses(self, name: str) -> Iterator[Loss]:
        outcome = self._predictions[name]
        for cell, nll, tokens, hits in zip(self._cells, outcome.nll, outcome.scored, outcome.hits, strict=True):
            if tokens > 0:
                yield Loss(name, *cell, float(nll), int(tokens), int(hits))

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self._grids)

    def loss(self, name: str, task: str) -> LinearEstimate:
        grid = self._grids[task]
        return self._mean(task, grid.nll[grid.plans.index(name)], grid.tokens)

    def accuracy(self, name: str, task: str) -> LinearEstimate:
        grid = self._grids[task]
        hits = grid.hits[grid.plans.index(name)]
        if self._answered[task]:
            return self._mean(task, (hits == grid.tokens).astype(np.float64), np.ones(len(grid.cells)))
        return self._mean(task, hits, grid.tokens)

    def _mean(self, task: str, above: Numbers, below: Numbers) -> LinearEstimate:
        grid, strata = self._grids[task], self.strata(task)
        numerators, denominators = grid.by_unit(above), grid.by_unit(below)
        influences = np.empty(denominators.size)
        for label in np.unique(strata):
            units = strata == label
            mean = numerators[units].sum() / denominators[units].sum()
            influences[units] = numerators[units] - denominators[units] * mean
        return LinearEstimate(float(above.sum() / below.sum()), influences / denominators.sum())

    def strata(self, task: str) -> StratumLabels:
        return Strata.label_grid(self._grids[task])

    def documents(self, task: str) -> int:
        return self._grids[task].documents()

    def tokens(self, task: str) -> int:
        return int(self._grids[task].tokens.sum())

    def difference(self, first: str, second: str, task: str) -> tuple[float, float | None, float | None]:
        """Return the loss of `first` minus that of `second` in nats/token, with an interval over documents."""
        rows = compute_effects([*self._losses(first), *self._losses(second)], second, seed=self._seed)
        row = next(each for each in rows if each.metric == "delta_nll" and (len(self._grids) == 1 or each.task == task))
        return row.value, row.low, row.high


def _likelihoods(stack: Stack, plan: Plan, requests: BenchmarkRequests) -> RequestLikelihoods:
    rows: list[Loss] = []
    data, identity = requests.likelihoods, Plan.identity(stack.depth)
    if data is not None:
        done = frozenset() if plan == identity else frozenset({str(identity)})
        sweep(stack, [plan], data, sink=rows.extend, finished=lambda *_: done)
    return RequestLikelihoods.from_losses(rows, [plan], data)
