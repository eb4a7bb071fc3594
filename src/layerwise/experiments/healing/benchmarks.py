"""Benchmarks of a healing: lm-eval tasks and minimal pairs per model, whose answers are stored with the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np

from layerwise.data.splits import Splits
from layerwise.data.suites.generated_pairs import SUITE as PAIRS
from layerwise.data.suites.generated_pairs import generated_pairs
from layerwise.data.suites.minimal_pairs import PairSet
from layerwise.errors import MeasureError
from layerwise.experiments.engines.trainings import KeptEvaluation
from layerwise.experiments.healing.config import Healing
from layerwise.experiments.options.common import BATCH_TOKENS
from layerwise.measure.interventions.accuracy import Predictions, evaluate
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.interventions.sweep import sweep_into
from layerwise.measure.language.benchmark_requests import (
    BenchmarkRequests,
    RequestLikelihoods,
    build_requests,
    judged,
)
from layerwise.measure.language.benchmarks import find_benchmarks
from layerwise.measure.language.minimal_pairs import CHANCE, preferences
from layerwise.measure.language.pseudo_likelihood import SentenceScorer
from layerwise.measure.stats.statistics import Numbers, mean_of
from layerwise.plan import Plan
from layerwise.results import Loss
from layerwise.results.rows import BENCHMARK_TASK
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating


@dataclass(frozen=True)
class HealingBenchmarks:
    """What is asked of every model: `requests` of lm-eval, and `suites` of minimal pairs."""

    requests: BenchmarkRequests | None
    suites: tuple[PairSet, ...]

    @classmethod
    def of(cls, config: Healing, stack: Stack, *, filled_in: bool) -> HealingBenchmarks | None:
        """Return the benchmarks of `--tasks`, or None if there are none.

        Raises `MeasureError` for a model without a tokenizer, for lm-eval tasks of a masked model, and as
        `find_benchmarks` and `build_requests` do.
        """
        if not config.tasks:
            return None
        if stack.tokenizer is None:
            raise MeasureError("benchmarks need the model's tokenizer: name one with --tokenizer, or leave out --tasks")
        named = [name for name in config.tasks if name != PAIRS]
        if named and filled_in:
            raise MeasureError(
                f"{stack.source.name} fills in tokens, and lm-eval asks {', '.join(named)} of models that write: give "
                f"--tasks {PAIRS}"
            )
        requests = None
        if named:
            benchmarks = find_benchmarks(named, config.task_folder, seed=config.seed)
            requests = build_requests(
                stack, benchmarks, batch_tokens=BATCH_TOKENS, limit=config.task_limit, seed=config.seed
            )
        suites = (generated_pairs().first(config.task_limit),) if PAIRS in config.tasks else ()
        return cls(requests, suites)

    @property
    def chance(self) -> Mapping[str, float]:
        """What guessing scores on each."""
        of_requests = {} if self.requests is None else dict(self.requests.chance)
        return of_requests | {each.suite: CHANCE for each in self.suites}

    def describe(self) -> str:
        """What is asked, in a sentence."""
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

    def answers(self, stack: Stack, plan: Plan) -> dict[str, Predictions]:
        """Return right (1) or wrong (0) answers under a plan, by benchmark; a tied pair counts 0.5.

        Raises `MeasureError` for a benchmark that is not judged by accuracy.
        """
        right: dict[str, list[float]] = {}
        if self.requests is not None:
            rows = judged(stack, plan, self.requests, _likelihoods(stack, plan, self.requests)).rows
            for row in rows:
                right.setdefault(row.task.removeprefix(BENCHMARK_TASK).partition("/")[0], []).append(float(row.hits))
            lacking = [name for name in self.requests.names if name not in right]
            if lacking:
                raise MeasureError(f"{lacking[0]} has no share of right answers to compare models by; leave it out")
        for suite in self.suites:
            scorer = SentenceScorer.of(stack.model, stack.tokenizer)
            with evaluating(stack.model), stack.under(plan):
                right[suite.suite] = list(preferences(scorer, suite.pairs))
        return {name: _predictions(np.array(values)) for name, values in right.items()}

    def evaluation(self, name: str, trained: str, plan: Plan, opened: Callable[[Path], Stack]) -> KeptEvaluation:
        """What the model that `opened(folder)` gives answers under a plan; `trained` names its training, if any."""
        key = sha256(f"{self._digest}/{trained}/{plan}".encode()).hexdigest()[:16]

        def make(folder: Path) -> Survey:
            stack = opened(folder)
            return Survey(stack.depth, self.answers(stack, plan))

        return KeptEvaluation(name, f"{FOLDER}/benchmarks-{key}.npz", make)

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


def outcome_of(
    name: str, trained: str, plan: Plan, opened: Callable[[Path], Stack], splits: Splits, filled_in: bool
) -> KeptEvaluation:
    """What the model that `opened(folder)` gives does under a plan; `trained` names its training, if it had one."""
    key = sha256(f"{splits.digest}/{trained}/{plan}".encode()).hexdigest()[:16]

    def make(folder: Path) -> Survey:
        stack = opened(folder)
        outcome = evaluate(stack, plan, splits.test, splits.collate, filled_in=filled_in)
        return Survey(stack.depth, {"test": outcome})

    return KeptEvaluation(name, f"{FOLDER}/{key}.npz", make)


class Outcomes:
    """What models did by name, and the examples of every task."""

    def __init__(self, splits: Splits, surveys: Mapping[str, Survey]) -> None:
        self._predictions = {name: survey.outcomes["test"] for name, survey in surveys.items()}
        windows = getattr(splits.test, "windows", None)
        units = [str(index) for index in range(len(splits.test))]
        tasks = [ALL] * len(units)
        if windows is not None:
            units = [f"{window.task}/{window.document}" for window in windows]
            tasks = [window.task for window in windows]
        self._units = np.unique(units, return_inverse=True)[1]
        named = sorted(set(tasks))
        self._of_task = {ALL: np.ones(len(units), dtype=bool)}
        if len(named) > 1:
            self._of_task |= {task: np.array([each == task for each in tasks]) for task in named}
        self._answers = {
            task: windows is not None
            and all(window.scored_from > 1 for window, held in zip(windows, mask, strict=True) if held)
            for task, mask in self._of_task.items()
        }

    @property
    def tasks(self) -> tuple[str, ...]:
        """All of the text, and its tasks where it has several."""
        return tuple(self._of_task)

    def nll(self, name: str, task: str) -> float:
        """Nats for each scored token (or image)."""
        mask, outcome = self._of_task[task], self._predictions[name]
        return float(outcome.nll[mask].sum() / outcome.scored[mask].sum())

    def accuracy(self, name: str, task: str) -> float:
        """The share that was right: of whole answers, where the task asks for answers, else of tokens or images."""
        mask, outcome = self._of_task[task], self._predictions[name]
        if self._answers[task]:
            return float((outcome.hits[mask] == outcome.scored[mask]).mean())
        return float(outcome.hits[mask].sum() / outcome.scored[mask].sum())

    def documents(self, task: str) -> int:
        """The documents, or images, of a task."""
        return len(np.unique(self._units[self._of_task[task]]))

    def tokens(self, task: str) -> int:
        """What is scored in a task."""
        return int(next(iter(self._predictions.values())).scored[self._of_task[task]].sum())

    def difference(self, first: str, second: str, task: str) -> tuple[float, float | None, float | None]:
        """Return the nats that `first` loses above `second`, with Student's interval over paired documents, if any."""
        mask = self._of_task[task]
        changes = self._predictions[first].nll - self._predictions[second].nll
        units = np.unique(self._units[mask], return_inverse=True)[1]
        scored = self._predictions[first].scored
        return mean_of(
            np.bincount(units, changes[mask]).astype(np.float64), np.bincount(units, scored[mask]).astype(np.float64)
        )


def _likelihoods(stack: Stack, plan: Plan, requests: BenchmarkRequests) -> RequestLikelihoods:
    rows: list[Loss] = []
    data, whole = requests.likelihoods, Plan.identity(stack.depth)
    if data is not None:
        done = frozenset() if plan == whole else frozenset({str(whole)})
        sweep_into(rows.extend, stack, [plan], data, finished=lambda *_: done)
    return RequestLikelihoods.of(rows, [plan], data)
