"""Evaluate benchmarks under many plans: a sweep computes the likelihoods that lm-eval requests.

    log-likelihood = -nll                     in nats, summed over all tokens of the continuation
    is greedy      = hits == tokens           every token was the arg-max

Text is generated under each plan separately.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from layerwise.data.batches import Batch, build_row, group_by_length, pad_rows
from layerwise.data.text.tokens import Window
from layerwise.errors import MeasureError
from layerwise.measure.language.benchmarks import (
    Benchmarks,
    check_logits,
    evaluate,
    find_chance,
    harness_model,
    harness_results,
    metric_name,
    result_rows,
    seeded_generators,
    set_fewshot_seed,
    silence_harness,
)
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.results.rows import BENCHMARK_TASK, Loss, Score, select_main_metric
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

BY_LIKELIHOOD = frozenset({"loglikelihood", "loglikelihood_rolling"})
"""The types of requests that ask for likelihoods."""

Key = tuple[str, int, int]
"""A request: benchmark, document, and index within the document."""

Cell = tuple[str, str, int]
"""A window: task, document, and index within the document."""


@dataclass(frozen=True, slots=True, eq=False)
class BenchmarkRequests:
    """The requests of benchmarks, created by `build_requests`.

    `likelihoods` has the windows of all likelihood requests (None if there are none), and `cells` maps each request to
    its windows. `written` names the benchmarks that generate text, and `chance` has the score of guessing.
    """

    benchmarks: Benchmarks
    limit: int | None
    seed: int
    likelihoods: EvalData | None
    cells: Mapping[Key, tuple[Cell, ...]] = field(repr=False)
    written: tuple[str, ...]
    chance: Mapping[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.benchmarks.loaded["tasks"])


@dataclass(frozen=True, slots=True, eq=False)
class RequestLikelihoods:
    """The likelihoods under each plan: `nll` in nats (NaN if not evaluated) and `greedy`, (plans, windows) each."""

    plans: Mapping[str, int]
    windows: Mapping[Cell, int]
    nll: NDArray[np.float64]
    greedy: NDArray[np.bool_]

    @classmethod
    def from_losses(cls, rows: Iterable[Loss], plans: Sequence[Plan], data: EvalData | None) -> RequestLikelihoods:
        """Arrange the rows of `plans` on `data` as arrays, ignoring all other rows."""
        windows = [] if data is None else [(each.task, each.document, each.index) for each in data.windows]
        plan_rows = {str(plan): row for row, plan in enumerate(plans)}
        columns = {cell: column for column, cell in enumerate(windows)}
        nll = np.full((len(plan_rows), len(columns)), np.nan)
        greedy = np.zeros(nll.shape, dtype=bool)
        for row in rows:
            plan, window = plan_rows.get(row.plan), columns.get((row.task, row.document, row.window))
            if plan is not None and window is not None:
                nll[plan, window], greedy[plan, window] = row.nll, row.hits == row.tokens
        return cls(plan_rows, columns, nll, greedy)

    def complete(self, plan: Plan) -> bool:
        return bool(np.isfinite(self.nll[self.plans[str(plan)]]).all())

    def answer(self, plan: Plan, cells: Sequence[Cell]) -> tuple[float, bool]:
        row, columns = self.plans[str(plan)], [self.windows[cell] for cell in cells]
        return -math.fsum(self.nll[row, columns].tolist()), bool(self.greedy[row, columns].all())


def build_requests(
    stack: Stack, benchmarks: Benchmarks, *, batch_tokens: int, limit: int | None = None, seed: int = 0
) -> BenchmarkRequests:
    """Build the requests of at most `limit` documents per benchmark; `seed` selects the few-shot examples.

    Raises `MeasureError` if there is no tokenizer, or if a request has no tokens to score or exceeds the model's
    context.
    """
    if stack.tokenizer is None:
        raise MeasureError("Benchmarks need a tokenizer, got none. Pass one with --tokenizer.")
    loaded = benchmarks.loaded["tasks"]
    with evaluating(stack.model), silence_harness():
        harness = harness_model(stack)
        set_fewshot_seed(loaded.values(), seed)
        with seeded_generators(seed):
            for task in loaded.values():
                task.build_all_requests(limit=limit, rank=0, world_size=1)
        windows, cells = _windows(harness, loaded)
    written = tuple(name for name, task in loaded.items() if any(not _by_likelihood(each) for each in task.instances))
    data = None
    if windows:
        batches = tuple(map(_batch, group_by_length(windows, batch_tokens)))
        longest = max(len(window.ids) for window in windows) - 1
        data = EvalData(", ".join(loaded), "", longest, "next_token", batches)
    chance = {name: find_chance(name, task) for name, task in loaded.items()}
    return BenchmarkRequests(benchmarks, limit, seed, data, cells, written, chance)


class JudgedPlan(NamedTuple):
    """The evaluation of a plan: lm-eval's metrics, one row per right or wrong answer, and lm-eval's results file."""

    scores: list[Score]
    rows: list[Loss]
    results: dict[str, Any]


def judge_plan(stack: Stack, plan: Plan, requests: BenchmarkRequests, answers: RequestLikelihoods) -> JudgedPlan:
    """Compute lm-eval's metrics of one plan from its likelihoods (`answers`) and the text that it generates.

    There is one row per benchmark and metric, named `metric/filter` if the metric has a filter. Intervals are +- 1.96
    standard errors over questions. Raises `MeasureError` if logits are not finite during generation.
    """
    loaded = requests.benchmarks.loaded
    with evaluating(stack.model), silence_harness(), _reset_answers(loaded["tasks"].values()):
        harness = harness_model(stack)
        _replace_answers(harness, lambda key: answers.answer(plan, requests.cells[key]))
        in_place = stack.under(plan) if requests.written else nullcontext()
        with in_place, check_logits(stack.model, plan):
            results = evaluate(harness, loaded, requests.limit, requests.seed)
        stored = harness_results(results, harness, stack, plan, limit=requests.limit, seed=requests.seed)
    scores = list(result_rows(str(plan), results))
    metrics: dict[str, list[str]] = defaultdict(list)
    for score in scores:
        metrics[score.task].append(score.metric)
    rows = [
        row
        for name in requests.names
        if (metric := select_main_metric(metrics[name])) is not None
        for row in _answer_rows(plan, name, metric, results["samples"].get(name, ()))
    ]
    return JudgedPlan(scores, rows, stored)


def _replace_answers(harness: Any, answer: Callable[[Key], tuple[float, bool]]) -> None:
    def loglikelihood(instances: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
        return [answer(_key(each)) for each in instances]

    def loglikelihood_rolling(instances: Sequence[Any], **_: Any) -> list[float]:
        return [answer(_key(each))[0] for each in instances]

    # Attributes of the instance take precedence over the methods of its class.
    harness.loglikelihood, harness.loglikelihood_rolling = loglikelihood, loglikelihood_rolling


def answer_task(name: str, metric: str) -> str:
    """Return the task name of rows that say for each document whether the answer was right.

    >>> answer_task("hellaswag", "acc_norm")
    'benchmark/hellaswag/acc_norm'
    """
    return f"{BENCHMARK_TASK}{name}/{metric}"


def _answer_rows(plan: Plan, name: str, metric: str, samples: Iterable[Mapping[str, Any]]) -> list[Loss]:
    rows = []
    for sample in samples:
        key = next((key for key in sample["metrics"] if metric_name(key, sample["filter"]) == metric), None)
        if key is None:
            continue
        value = sample[key]
        if not isinstance(value, int | float | bool | np.number) or float(value) not in (0.0, 1.0):
            return []
        rows.append(Loss(str(plan), answer_task(name, metric), str(sample["doc_id"]), 0, 0.0, 1, int(value)))
    return rows


def _by_likelihood(instance: Any) -> bool:
    return instance.request_type in BY_LIKELIHOOD


def _key(instance: Any) -> Key:
    return instance.task_name, instance.doc_id, instance.idx


def _windows(harness: Any, loaded: Mapping[str, Any]) -> tuple[list[Window], dict[Key, tuple[Cell, ...]]]:
    recorded: list[tuple[list[int], list[int]]] = []

    def record(requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any) -> list[tuple[float, bool]]:
        recorded.extend((context, continuation) for _, context, continuation in requests)
        return [(0.0, False)] * len(requests)

    harness._loglikelihood_tokens = record
    windows: list[Window] = []
    cells: dict[Key, tuple[Cell, ...]] = {}
    count: Counter[tuple[str, int]] = Counter()
    for name, task in loaded.items():
        for instance in filter(_by_likelihood, task.instances):
            recorded.clear()
            getattr(harness, instance.request_type)([instance], disable_tqdm=True)
            first = count[name, instance.doc_id]
            count[name, instance.doc_id] += len(recorded)
            made = [
                _window(f"{BENCHMARK_TASK}{name}", instance.doc_id, first + number, *tokens, harness.max_length)
                for number, tokens in enumerate(recorded)
            ]
            windows += made
            cells[_key(instance)] = tuple((each.task, each.document, each.index) for each in made)
    return windows, cells


def _window(task: str, document: int, index: int, context: list[int], continuation: list[int], longest: int) -> Window:
    if not context or not 0 < len(continuation) <= longest:
        raise MeasureError(
            f"Requests must have at least 1 context token and 1 to {longest} continuation tokens, got {len(context)} "
            f"and {len(continuation)} in request {index} of document {document} of "
            f"{task.removeprefix(BENCHMARK_TASK)}. Remove the benchmark or the document."
        )
    ids = (*context, *continuation)[-(longest + 1) :]
    return Window(str(document), task, index, ids, len(ids) - len(continuation), len(ids))


def _batch(group: Sequence[Window]) -> Batch:
    rows = []
    for window in group:
        ids, targets = build_row(window, None)
        rows.append({"input_ids": ids[:-1], "labels": targets[:-1]})  # the last token is only predicted
    batch = pad_rows(rows, 0)
    return Batch(batch["input_ids"], batch["attention_mask"], batch["labels"], tuple(group))


@contextmanager
def _reset_answers(tasks: Iterable[Any]) -> Iterator[None]:
    built = list(tasks)
    for task in built:
        task.build_all_requests = lambda **_: None
        for instance in task.instances:
            instance.resps, instance.filtered_resps = [], {}
    try:
        yield
    finally:
        for task in built:
            del task.build_all_requests
