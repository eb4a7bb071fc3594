"""Task sets: prompts with one right answer each, asked of many plans at once by likelihood.

    skills           the demo's own questions, generated: arithmetic, copy, sort, brackets
    a path           a text whose documents mark their answers (`answer_start` of a `.jsonl`, as LAMBADA's last words)
    anything else    a benchmark of lm-eval that is asked by likelihood (multiple choice, LAMBADA, BLiMP)

The answer of a document is right when every token of it is the arg-max; its score in nats is its log-likelihood. A
benchmark is right as lm-eval's main metric of it says, and has no score in nats. What a router reads is the prompt: the
tokens before the answer, or those with which all requests of a document begin; where these are none, there is no prompt
and the question is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layerwise.data.demo.corpus import demo_corpus
from layerwise.data.demo.skills import TASKS
from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.data.text.tokens import Window
from layerwise.errors import DataError, MeasureError
from layerwise.measure.language.benchmark_requests import BenchmarkRequests, build_requests
from layerwise.measure.language.benchmarks import find_benchmarks
from layerwise.measure.language.evaluation_data import EvalData, portion, tokenize
from layerwise.measure.stats.grid import WHOLE
from layerwise.measure.stats.statistics import Numbers
from layerwise.measure.stats.strata import shuffled
from layerwise.plan import Plan
from layerwise.results.rows import Loss, main_metric
from layerwise.search.routing import OBJECTIVES, Objective
from layerwise.stack import Stack

SKILLS = "skills"
PER_SKILL = 200
"""Questions of each skill, unless there is a limit."""

FEWEST = 60
"""Questions below which a set is refused: no fold and no interval would have enough of them."""

CHOOSING = 5
"""One question in so many chooses the candidates."""

Document = tuple[str, str]
"""A question: its task and its document."""

Judge = Callable[[Document, Mapping[int, Loss]], tuple[float, float]]
"""From the rows of a question under a plan, by window, to whether it is right (1 or 0) and its score in nats."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskSet:
    """Questions under a name: the windows whose losses answer them, the prompt of each, and what each is for.

    A fifth of the questions of every task chooses candidates (`choosing`); routers are fitted to all others and tested
    on them (`routing`).
    """

    name: str
    data: EvalData
    prompts: Mapping[Document, tuple[int, ...]]
    choosing: tuple[Document, ...]
    routing: tuple[Document, ...]
    judge: Judge

    @classmethod
    def of(cls, name: str, data: EvalData, judge: Judge, seed: int) -> TaskSet:
        """The questions of `data`, divided. Raises `DataError` for too few of them."""
        windows: dict[Document, list[Window]] = defaultdict(list)
        for window in sorted(data.windows, key=lambda each: each.index):
            windows[window.task, window.document].append(window)
        prompts = {document: prompt for document, own in windows.items() if (prompt := _prompt(own))}
        if len(prompts) < FEWEST:
            raise DataError(f"{name} has {len(prompts)} questions, and a router needs {FEWEST} at least: give more")
        order = [(task, document) for task, document, _ in shuffled(((*each, WHOLE) for each in prompts), seed)]
        choosing = order[::CHOOSING]
        return cls(name, data, prompts, tuple(choosing), tuple(sorted(set(order) - set(choosing))), judge)

    @property
    def routing_prompts(self) -> list[tuple[int, ...]]:
        """The prompts of the questions that routers are fitted to and tested on."""
        return [self.prompts[document] for document in self.routing]

    def part(self, documents: Iterable[Document]) -> EvalData:
        """The windows of some of the questions."""
        return portion(self.data, {(task, document, WHOLE) for task, document in documents})

    def judged(
        self, documents: Sequence[Document], plans: Sequence[Plan], rows: Iterable[Loss]
    ) -> dict[Objective, Numbers]:
        """What plans answered, (questions, plans): 1 for a right answer and 0 for a wrong one, and its log-likelihood.

        A score that there is not is not a number. `rows` of other plans and documents are passed over.
        """
        by_question: dict[tuple[str, str, str], dict[int, Loss]] = defaultdict(dict)
        for row in rows:
            by_question[row.plan, row.task, row.document][row.window] = row
        values = np.full((2, len(documents), len(plans)), np.nan)
        for column, plan in enumerate(plans):
            for number, document in enumerate(documents):
                answers = by_question.get((str(plan), *document))
                if answers:
                    values[:, number, column] = self.judge(document, answers)
        return dict(zip(OBJECTIVES, values, strict=True))


def _prompt(windows: Sequence[Window]) -> tuple[int, ...]:
    """The tokens before the answer, or those with which several windows begin."""
    first, *others = windows
    if not others:
        return first.ids[: first.scored_from]
    columns = zip(*(window.ids for window in windows), strict=False)
    alike = [len(set(column)) == 1 for column in columns]
    return first.ids[: [*alike, False].index(False)]


def read_task_set(
    stack: Stack, name: str, *, folder: Path | None, limit: int | None, length: int | None, batch_tokens: int, seed: int
) -> TaskSet:
    """The task set of a name. Raises `DataError` and `MeasureError` for what is none, or is too small."""
    if name != SKILLS and not Path(name).exists():
        loaded = find_benchmarks([name], folder, seed=seed)
        requests = build_requests(stack, loaded, batch_tokens=batch_tokens, limit=limit, seed=seed)
        if requests.likelihoods is None or requests.written:
            raise MeasureError(f"{name} asks the model to write; a router is measured on what is asked by likelihood")
        return TaskSet.of(name, requests.likelihoods, _benchmark_judge(requests), seed)
    if name == SKILLS:
        corpus = demo_corpus(texts=0, questions=PER_SKILL if limit is None else -(-limit // len(TASKS)))
    else:
        corpus = read_corpus(name, task=Path(name).name.partition(".")[0])
    answered = tuple(document for document in corpus.documents if document.answer_start is not None)
    if not answered:
        raise DataError(
            f'no document of {name} marks its answer: write {{"text": ..., "answer_start": 17}} lines, the first '
            "character of the answer, or name a benchmark"
        )
    kept = Corpus(corpus.name, answered)
    data = tokenize(stack, kept, length=length, batch_tokens=batch_tokens, seed=seed)
    if data.objective != "next_token":
        raise MeasureError(
            f"{stack.source.name} fills in masked tokens; a router needs a model that reads left to right"
        )
    pieces = {(window.task, window.document, WHOLE) for window in data.windows}
    if limit is not None and limit < len(pieces):
        data = portion(data, shuffled(pieces, seed)[:limit])
    return TaskSet.of(Path(name).name, data, _exact_match, seed)


def _exact_match(document: Document, answers: Mapping[int, Loss]) -> tuple[float, float]:
    (row,) = answers.values()
    return float(row.hits == row.tokens), -row.nll


def _benchmark_judge(requests: BenchmarkRequests) -> Judge:
    """lm-eval's own judgement of the answers to all requests of a question."""
    tasks = requests.benchmarks.loaded["tasks"]
    instances: dict[str, list[Any]] = defaultdict(list)
    for task in tasks.values():
        for instance in sorted(task.instances, key=lambda each: each.idx):
            instances[f"{instance.task_name}/{instance.doc_id}"].append(instance)

    def judge(document: Document, answers: Mapping[int, Loss]) -> tuple[float, float]:
        benchmark = document[0].partition("/")[2]
        own, replies = instances[f"{benchmark}/{document[1]}"], []
        for instance in own:
            rows = [answers[index] for _, _, index in requests.cells[benchmark, instance.doc_id, instance.idx]]
            replies.append((-sum(row.nll for row in rows), all(row.hits == row.tokens for row in rows)))
        metrics = tasks[benchmark].process_results(own[0].doc, replies)
        metric = main_metric(metrics)
        if metric is None:
            raise MeasureError(f"{benchmark} is judged by no share of right answers, but by {', '.join(metrics)}")
        return float(metrics[metric]), float("nan")

    return judge
