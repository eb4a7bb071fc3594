"""Read and match the output of lm-eval's `--log_samples`, without lm-eval, torch or a model.

    FOLDER/results_DATE.json            settings, and the score of every task (NAME_DATE.json if the path is NAME.json)
    FOLDER/samples_TASK_DATE.jsonl      a line for each document and filter, with hashes and the value of each metric

A sweep with `--tasks` writes a results file for each plan to `RUN/lm_eval/PLAN`, and the answers to the database of the
run. Documents of two evaluations are matched by their hashes. If the tasks, prompts, documents or scoring differ, the
error message names the difference.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec

from layerwise.bounded import (
    MAX_TEXT_SIZE,
    UnreadableError,
    decoded,
    kind_of,
    named,
    parse_json,
    read_bytes,
    read_json,
    shown,
)
from layerwise.errors import RunError
from layerwise.results.rows import BENCHMARK_TASK
from layerwise.results.run import Run, is_run

Metric = tuple[str, str]
"""The name of a metric, and of the lm-eval filter that extracted the answers it scores."""
Values = tuple[tuple[float, ...] | None, ...]
"""The value of a metric for each document: one number, two (a log-likelihood and the number of bytes), or None."""
Answers = tuple[tuple["LoggedDocument", ...], dict[Metric, Values]]

PLANS = "lm_eval"
_TRUTH = {"True": 1.0, "False": 0.0}  # numpy's truth values, as lm-eval writes them
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function that has no source
_SCORING = ("output_type", "filter_list", "metric_list", "process_results", "repeats")
_OF_FILES = ("filters", "metrics")  # of which a sweep keeps one alone
_AGAIN = "Copy it again or repeat the evaluation."
_FILE = re.compile(r"(.+)_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.json")


class _Results(msgspec.Struct, rename={"shots": "n-shot", "counts": "n-samples"}):
    results: dict[str, dict[str, Any]]
    configs: dict[str, dict[str, Any]]
    config: dict[str, Any]
    versions: dict[str, Any] = {}
    shots: dict[str, Any] = {}
    counts: dict[str, dict[str, Any]] = {}
    task_hashes: dict[str, str] = {}
    higher_is_better: dict[str, dict[str, bool | None]] = {}
    system_instruction: str | None = None
    chat_template_sha: str | None = None
    fewshot_as_multiturn: bool | None = None


class LoggedDocument(msgspec.Struct):
    """A benchmark document with its hashes. `arguments` is a hash of its requests, and `doc` the start of its text."""

    doc_id: int
    doc_hash: str
    prompt_hash: str
    target_hash: str
    metrics: tuple[str, ...] | None = None  # as `filter` only since lm-eval 0.4.6
    filter: str | None = None
    doc: Any = None
    arguments: Any = None


@dataclass(frozen=True)
class TaskLog:
    """One task of an evaluation. `stated` are the scores in the results file; `all_hash` is a hash of all documents."""

    settings: Mapping[str, object]
    documents: tuple[LoggedDocument, ...] = field(repr=False)
    values: Mapping[Metric, Values] = field(repr=False)
    stated: Mapping[Metric, float]
    more_is_better: Mapping[str, bool | None]
    all_hash: str


@dataclass(frozen=True)
class EvaluationLog:
    """The evaluation of a model. `tasks` has the logs of each task, newest first; `model` is lm-eval's `model_args`."""

    location: str
    title: str
    model: object
    tasks: Mapping[str, list[TaskLog]] = field(repr=False)

    @classmethod
    def read(cls, location: str) -> EvaluationLog:
        paths = _result_files(Path(location).expanduser())
        files = {path: _results(path) for path in paths}
        logs = [(task, _task(*file, task)) for file in files.items() for task in sorted(file[1].configs)]
        tasks = {task: [log for name, log in logs if name == task] for task, _ in logs}
        model = next(iter(files.values())).config.get("model_args")
        return cls(location, _name(paths[0]), model, tasks)


def _result_files(path: Path) -> list[Path]:
    if kind_of(path) == "file" and _FILE.fullmatch(path.name):
        return [path]
    if kind_of(path) != "folder":
        raise RunError(f"{named(path)} is not a folder. Pass a run directory or the --output_path of lm-eval.")
    inside = path / PLANS if is_run(path) else path
    evaluations: dict[str, list[Path]] = {}
    for each in sorted(chain(path.glob("*.json"), inside.glob("*/*.json")), key=lambda each: each.name, reverse=True):
        if match := _FILE.fullmatch(each.name):
            parent = each.parent if match[1] == "results" else each.parent / match[1]
            evaluations.setdefault(parent.relative_to(path).as_posix(), []).append(each)
    direct = [name for name, files in evaluations.items() if files[0].parent == path]
    if len(direct or evaluations) == 1:
        return evaluations[next(iter(direct or evaluations))]
    if evaluations:
        names = sorted(direct or evaluations)
        names = [evaluations[name][0].name if name in direct else name for name in names]
        raise RunError(f"{named(path)} contains {len(names)} evaluations. Pass one of them: {', '.join(names[:5])}.")
    if (path / "results.json").is_file():
        raise RunError(
            f"{named(path)} was written by lm-eval before 0.4.3, whose samples have no document hashes. Evaluate again "
            "with a newer version."
        )
    raise RunError(f"{named(path)} has no results_DATE.json. Pass a run directory or the --output_path of lm-eval.")


def _name(path: Path) -> str:
    stem = path.name.rpartition("_")[0]
    return path.parent.name if stem == "results" else stem


def _results(path: Path) -> _Results:
    try:
        return msgspec.convert(read_json(path), _Results)
    except (UnreadableError, msgspec.ValidationError) as error:
        raise _refusal(named(path), error) from error


def _refusal(where: str, error: Exception) -> RunError:
    reason = error if isinstance(error, UnreadableError) else f"is not an lm-eval log ({error})"
    return RunError(f"{where} {reason}. {_AGAIN}")


def _task(path: Path, content: _Results, task: str) -> TaskLog:
    config, date = content.configs[task], path.stem.rpartition("_")[2]
    samples = path.parent / f"samples_{task}_{date}.jsonl"
    keys = ((key.partition(","), _numbers(each)) for key, each in content.results.get(task, {}).items())
    stated = {(metric, filtered): each[0] for (metric, _, filtered), each in keys if filtered and each}
    is_own_run = path.parents[1].name == PLANS and is_run(path.parents[2])
    documents, values = _kept(path, content, task, stated) if is_own_run else _logged(samples, task, stated)
    expected = content.counts.get(task, {}).get("effective", len(documents))
    if expected != len(documents):
        raise RunError(f"{named(samples)} has {len(documents)} of {shown(expected)} documents. {_AGAIN}")
    template = content.chat_template_sha
    settings = {
        "version": content.versions.get(task),
        "--num_fewshot": content.shots.get(task),
        "--limit": content.config.get("limit"),
        "--apply_chat_template": template,
        "--system_instruction": content.system_instruction or None,
        "--fewshot_as_multiturn": template and bool(content.fewshot_as_multiturn),
        "--gen_kwargs": config.get("generation_kwargs"),
        **{name: _ADDRESS.sub("", json.dumps(config.get(name))) for name in _SCORING},
        "filters": sorted({filtered for _, filtered in values}),
        "metrics": sorted({metric for metric, _ in values}),
    }
    higher, hashed = content.higher_is_better.get(task, {}), content.task_hashes.get(task, "")
    return TaskLog(settings, documents, values, stated, higher, hashed)


def _logged(path: Path, task: str, stated: Mapping[Metric, float]) -> Answers:
    if kind_of(path) == "nothing":
        raise RunError(f"{named(path.parent)} has no {path.name}. Evaluate {task} again with --log_samples.")
    filters: dict[str, dict[int, tuple[LoggedDocument, dict[str, tuple[float, ...] | None]]]] = {}
    where, order, lines = named(path), list(dict.fromkeys(filtered for _, filtered in stated)), Counter[int]()
    try:
        # Not `splitlines`: the texts of documents hold other ends of lines.
        for number, line in enumerate(decoded(read_bytes(path, MAX_TEXT_SIZE)).removesuffix("\n").split("\n"), start=1):
            where = f"line {number} of {named(path)}"
            content = parse_json(line)
            document = msgspec.convert(content, LoggedDocument)
            lines[document.doc_id] += 1
            if document.filter is None:
                # Logs of older versions have a line of each document for each filter, in the order of the results.
                document.filter = order[min(lines[document.doc_id], len(order)) - 1] if order else "none"
            if document.metrics is None:
                document.metrics = tuple(name for name, each in stated if each == document.filter and name in content)
            by_document = filters.setdefault(document.filter, {})
            if document.doc_id in by_document:
                raise UnreadableError(f"repeats document {document.doc_id}")
            values = {name: _numbers(content.get(name)) for name in document.metrics}
            if wrong := [name for name, value in values.items() if not all(map(math.isfinite, value or ()))]:
                raise UnreadableError(f"has a value of {wrong[0]} that is not finite")
            requests = json.dumps([document.prompt_hash, document.arguments], sort_keys=True)
            document.arguments, document.doc = sha256(requests.encode()).hexdigest(), shown(document.doc)
            by_document[document.doc_id] = document, values
    except (UnreadableError, msgspec.ValidationError, RecursionError) as error:
        raise _refusal(where, error) from error
    first = next(iter(filters.values()))
    if short := [name for name, by_document in filters.items() if by_document.keys() != first.keys()]:
        raise RunError(f"{named(path)} has different documents for the filter {short[0]} than for others. {_AGAIN}")
    metrics = {
        (name, each): by_document
        for each, by_document in filters.items()
        for _, values in by_document.values()
        for name in values
    }
    by_metric = {key: tuple(by_document[at][1].get(key[0]) for at in first) for key, by_document in metrics.items()}
    return tuple(document for document, _ in first.values()), by_metric


def _numbers(value: object) -> tuple[float, ...] | None:
    parts = value if isinstance(value, list) else [value]
    values = [_TRUTH.get(each) if isinstance(each, str) else each for each in parts]
    numbers = tuple(
        float(each) if abs(each) < 2**1023 else math.inf for each in values if isinstance(each, int | float)
    )
    return numbers if len(numbers) == len(values) else None


def _kept(path: Path, content: _Results, task: str, stated: Mapping[Metric, float]) -> Answers:
    arguments = content.config.get("model_args")
    plan = arguments.get("plan") if isinstance(arguments, dict) else None
    with Run.open(path.parents[2]) as run:
        for metric, filtered in stated:
            name = f"{BENCHMARK_TASK}{task}/{metric}" + ("" if filtered == "none" else f"/{filtered}")
            rows = {int(row.document): (float(row.hits),) for row in run.store.losses(name) if row.plan == plan}
            if rows:
                documents = tuple(LoggedDocument(at, "", "", "") for at in sorted(rows))
                return documents, {(metric, filtered): tuple(rows[at] for at in sorted(rows))}
    raise RunError(f"{named(path.parents[2])} has no answers to {task} under the plan {plan}. Repeat the sweep.")


def match(what: str, first: TaskLog, second: TaskLog) -> dict[Metric, tuple[Values, Values]]:
    """Return the values of each metric in two logs of a task, with the documents in the same order.

    Raises:
        RunError: If tasks, prompts, documents or scoring differ. The message calls the task `what`.
    """
    hashed = all(document.doc_hash for log in (first, second) for document in log.documents)
    for name, left in first.settings.items():
        right = second.settings[name]
        if left != right and (hashed or name not in _OF_FILES):
            raise RunError(f"{name} of {what} differs: {shown(left)} and {shown(right)}. Use the same for both.")
    if not hashed and first.all_hash != second.all_hash:
        raise RunError(f"Documents or prompts of {what} differ. Evaluate both models on the same ones.")
    left_at, right_at = (_order(log, hashed) for log in (first, second))
    for log, positions, others, absent in ((first, left_at, right_at, "second"), (second, right_at, left_at, "first")):
        for document in (log.documents[at] for key, at in positions.items() if key not in others):
            text = f"the {absent} evaluation does not have document {document.doc_id}, {document.doc}"
            raise RunError(f"Documents of {what} differ: {text}. Evaluate both models on the same version of the data.")
    order = [right_at[key] for key in left_at]
    for document, at in zip(first.documents, order, strict=True):
        for name, field_name in (("Right answer", "target_hash"), ("Prompt", "arguments")):
            if hashed and getattr(document, field_name) != getattr(second.documents[at], field_name):
                text = f"on document {document.doc_id}, {document.doc}"
                raise RunError(f"{name} of {what} differs {text}. Use the same version, prompt and --seed for both.")
    shared = [metric for metric in first.values if metric in second.values]
    return {metric: (first.values[metric], tuple(second.values[metric][at] for at in order)) for metric in shared}


def _order(log: TaskLog, hashed: bool) -> dict[tuple[str | int, int], int]:
    documents = log.documents
    # Equal documents are distinguished by their requests, then by their numbers.
    ranked = sorted(range(len(documents)), key=lambda at: _rank(documents[at]))
    keys = [documents[at].doc_hash if hashed else documents[at].doc_id for at in ranked]
    seen: defaultdict[str | int, Iterator[int]] = defaultdict(count)
    order = {at: (key, next(seen[key])) for at, key in zip(ranked, keys, strict=True)}
    return {order[at]: at for at in range(len(documents))}


def _rank(document: LoggedDocument) -> tuple[str, str, int]:
    return str(document.arguments), document.target_hash, document.doc_id


def disagreements(first: TaskLog, second: TaskLog) -> int:
    """Count the documents on which two evaluations of one model differ. Return 0 if they cannot be matched."""
    try:
        pairs = [zip(*values, strict=True) for values in match("the task", first, second).values()]
    except RunError:
        return 0
    return sum(any(left != right for left, right in each) for each in zip(*pairs, strict=True))
