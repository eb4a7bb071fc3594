"""The benchmarks of a sweep, and the comparison of plans on them.

Likelihoods are computed for all plans at once, and text is generated plan by plan. Masked language models cannot
generate text. Results are also written in lm-eval's JSON format, with one file per plan:
RUN/lm_eval/PLAN-DIGEST/results_TIME.json.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from layerwise.errors import MeasureError
from layerwise.measure.contrasts.contrast import CONTRAST, replace_claims
from layerwise.measure.interventions.sweep import ShardRunner, estimate_cost, plan_records
from layerwise.measure.language.benchmark_requests import (
    BenchmarkRequests,
    RequestLikelihoods,
    answer_task,
    build_requests,
    judge_plan,
)
from layerwise.measure.language.benchmarks import SOURCE, find_benchmarks, normalize_scores
from layerwise.plan import Member, Plan
from layerwise.results import Manifest, Run, Score
from layerwise.results.rows import BENCHMARK_TASK, select_main_metric
from layerwise.results.run import write_whole
from layerwise.results.vocabulary import BENCHMARK, CHANCE, NORMALIZED
from layerwise.runner.reporter import Reporter, format_duration
from layerwise.runner.tasks import Study, Task
from layerwise.stack import Stack
from layerwise.studies.sweep.benchmark_contrasts import CLAIMS, BenchmarkAnswers, ScaledScores, contrast_benchmarks
from layerwise.studies.sweep.tasks import store_losses


def load_benchmarks(
    stack: Stack,
    members: Sequence[Member],
    plans: Sequence[Plan],
    *,
    tasks: Sequence[str],
    task_folder: Path | None,
    task_limit: int | None,
    num_fewshot: int | None,
    batch_tokens: int,
    seed: int,
) -> BenchmarksTask:
    """Load benchmarks, and make the task of a sweep that runs them."""
    loaded = find_benchmarks(tuple(tasks), task_folder, seed=seed, num_fewshot=num_fewshot)
    requests = build_requests(stack, loaded, batch_tokens=batch_tokens, limit=task_limit, seed=seed)
    return BenchmarksTask(stack, members, tuple(plans), requests, seed)


@dataclass(frozen=True)
class BenchmarksTask(Task[list[str]]):
    """The answers of every plan to the benchmarks, and the comparison of plans.

    The result has a sentence for each plan that could not be evaluated. If `runner` is given, likelihoods are computed
    on a cluster; text is always generated in this process.
    """

    stack: Stack
    members: Sequence[Member]
    plans: Sequence[Plan]
    requests: BenchmarkRequests
    seed: int
    runner: ShardRunner | None = None

    def describe(self) -> Iterator[str]:
        data = self.requests.likelihoods
        if data is not None:
            cost = estimate_cost(self.stack, self.plans, data)
            several = "batch" if len(data.batches) == 1 else "batches"
            yield (
                f"benchmarks: {len(data.windows):,} likelihoods in {len(data.batches):,} {several}; per batch "
                f"{cost.evaluations:,} layer evaluations ({cost.naive:,} without prefix sharing, "
                f"{cost.naive / cost.evaluations:.2f}x as many)"
            )
        if self.requests.written:
            yield f"benchmarks: answers to {', '.join(self.requests.written)} are generated plan by plan"

    def execute(self, study: Study) -> list[str]:
        run, reporter = study.run, study.reporter
        failures = self._likelihoods(run, reporter)
        judged_now = self._judge(run, reporter, failures)
        compared = any(score.condition == NORMALIZED for score in run.store.scores(BENCHMARK))
        if judged_now or not (compared or run.store.notes(BENCHMARK)):
            self._compare(run, reporter)
        return failures

    def _likelihoods(self, run: Run, reporter: Reporter) -> list[str]:
        data = self.requests.likelihoods
        due = None if data is None else estimate_cost(self.stack, self.plans, data, run.store.finished)
        if data is None or due is None or not due.head_tokens:
            return []
        spent, failures = store_losses("benchmarks", self.stack, self.plans, data, run, reporter, self.runner)
        reporter.log(
            f"benchmarks: {format_duration(spent.layer_seconds + spent.head_seconds)} in layers and heads; "
            f"{spent.layer_tokens / due.layer_tokens:.2f}x the minimum number of layer evaluations"
        )
        return [f"benchmarks: {failure}" for failure in failures]

    def _judge(self, run: Run, reporter: Reporter, failures: list[str]) -> bool:
        store = run.store
        stored = store.scores(BENCHMARK)
        raw = [score for score in stored if score.condition != NORMALIZED]
        due = [plan for plan in self.plans if str(plan) not in {score.plan for score in raw}]
        if not due:
            return False
        rows = (row for name in self.requests.names for row in store.losses(f"{BENCHMARK_TASK}{name}"))
        answers = RequestLikelihoods.from_losses(rows, due, self.requests.likelihoods)
        if not any(score.against == CHANCE for score in raw):
            raw += [
                Score(BENCHMARK, CHANCE, value, task=name, against=CHANCE)
                for name, value in self.requests.chance.items()
            ]
        before = len(raw)
        for number, plan in enumerate(due, start=1):
            if not answers.complete(plan):
                continue
            if self.requests.written:
                reporter.log(f"benchmarks under plan {number} of {len(due)}: {plan}")
            began, started = datetime.now(), time.perf_counter()
            try:
                scores, rows_of_documents, results = judge_plan(self.stack, plan, self.requests, answers)
            except MeasureError as error:
                if plan == self.plans[0]:
                    raise
                failures.append(str(error))
                continue
            # This comes before the rows, which mark the plan as finished.
            seconds = time.perf_counter() - started
            write_harness_results(run.folder, plan, results, run.manifest, began, seconds)
            finished = store.finished
            store.add_losses(
                row for row in rows_of_documents if row.plan not in finished(row.task, row.document, row.window)
            )
            raw += scores
            if self.requests.written:  # generation takes long
                store.replace_scores(BENCHMARK, raw)
        if len(raw) > before:
            store.replace_scores(BENCHMARK, raw)
        return len(raw) > before

    def _compare(self, run: Run, reporter: Reporter) -> None:
        store, full = run.store, str(self.plans[0])
        raw = [score for score in store.scores(BENCHMARK) if score.condition != NORMALIZED]
        reporter.log("benchmarks: paired bootstrap over documents")
        metrics = {
            name: select_main_metric(score.metric for score in raw if score.plan == full and score.task == name)
            for name in self.requests.names
        }
        tasks = {name: answer_task(name, metric) for name, metric in metrics.items() if metric is not None}
        answers = BenchmarkAnswers.from_rows(
            {name: store.losses(task) for name, task in tasks.items()},
            [str(plan) for plan in self.plans],
            {name: (metric or "", self.requests.chance[name]) for name, metric in metrics.items()},
        )
        on_scale = ScaledScores.from_answers(answers, full, seed=self.seed)
        paired = list(on_scale.rows(answers.metrics))
        with_interval = {(row.task, row.metric) for row in paired}
        normalized = normalize_scores(raw, full, self.requests.chance)
        scaled = [row for row in normalized if (row.task, row.metric) not in with_interval]
        records = plan_records(self.members)
        contrasts = contrast_benchmarks(on_scale, records, self.stack.depth, seed=self.seed)
        store.replace_scores(CONTRAST, replace_claims(store.scores(CONTRAST), contrasts, CLAIMS))
        store.replace_notes(BENCHMARK, on_scale.unscaled())
        # These rows mark the comparison as complete, so they are stored last.
        store.replace_scores(BENCHMARK, [*raw, *scaled, *paired])


FOLDER = "lm_eval"
_MAX_NAME = 60


def _read_commit() -> str | None:
    try:
        described = subprocess.run(["git", "describe", "--always"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return described.stdout.strip() or None


def write_harness_results(
    folder: Path, plan: Plan, results: Mapping[str, Any], manifest: Manifest, began: datetime, seconds: float
) -> Path:
    """Write the results of a plan (see `harness_results`) to a run directory, where they replace earlier ones.

    `seconds` is the time of the plan without likelihoods, which are computed for all plans together.
    """
    from lm_eval.loggers.evaluation_tracker import GeneralConfigTracker
    from lm_eval.utils import handle_non_serializable

    tracker = GeneralConfigTracker()
    tracker.model_source = SOURCE
    tracker.model_name = f"{manifest.model} under {plan}"
    tracker.model_name_sanitized = name_folder(plan)
    tracker.start_time, tracker.end_time = 0.0, seconds
    tracker.total_evaluation_time_seconds = str(seconds)
    content = {
        **results,
        "git_hash": _read_commit(),
        "date": began.timestamp(),
        "pretty_env_info": "\n".join(
            f"{name}: {value}" for name, value in {**manifest.versions, **manifest.hardware}.items()
        ),
        "transformers_version": version("transformers"),
        "lm_eval_version": version("lm_eval"),
        "upper_git_hash": None,
        **asdict(tracker),
    }
    text = json.dumps(content, indent=2, default=handle_non_serializable, ensure_ascii=False)
    own_folder = folder / FOLDER / name_folder(plan)
    own_folder.mkdir(parents=True, exist_ok=True)
    file = own_folder / f"results_{began.isoformat().replace(':', '-')}.json"
    write_whole(file, text.encode())
    for earlier in own_folder.glob("results_*.json"):
        if earlier != file:
            earlier.unlink()
    return file


def name_folder(plan: Plan) -> str:
    """Return a name for the results folder of a plan. The name is valid on every file system.

    >>> name_folder(Plan.parse("0-13 (14|15)*3 18-31"))
    '0-13 (14__15)__3 18-31-bfce828a'
    """
    from lm_eval.utils import sanitize_model_name

    text = str(plan)
    return f"{sanitize_model_name(text)[:_MAX_NAME]}-{sha256(text.encode()).hexdigest()[:8]}"
