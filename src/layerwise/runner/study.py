"""Start, resume, stop and report the run of a verb."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layerwise import __version__
from layerwise import page as pages
from layerwise.errors import LayerwiseError, MeasureError, TrainError
from layerwise.results import Manifest, Run
from layerwise.results.run import is_run, write_whole
from layerwise.runner.opening import default_folder
from layerwise.runner.price import describe_remaining
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.summary import report_data, summary
from layerwise.runner.tasks import Remaining, Study, Task
from layerwise.runner.trained_models import TrainedModels
from layerwise.runner.verb import Invocation, StudyFinishedError, current_call
from layerwise.train.processes import is_alone, is_first_process, use_own_accelerator

COMPLETE = "complete"
"""Name of the file that contains the hash of the options with which the run was completed."""

UNMEASURED_OPTIONS = ("run", "overwrite", "ray", "workers")
"""Options that do not affect the results."""


def has_no_rows(run: Run) -> bool:
    return not run.store.scores()


@dataclass(frozen=True, kw_only=True)
class RunDescription:
    """The work of a command, described before anything is computed.

    Args:
        manifest: Manifest of the run.
        lines: Sentences that describe the work.
        tasks: Tasks whose remaining work is counted for the time estimate.
        recipe: Settings that determine the name of the run directory, together with the manifest.
        folder: Existing run to which the rows are added. By default, the command has its own run.
        refuse: Raises an error if the directory contains something that conflicts with this run.
        discard: Removes files of an earlier run if `overwrite` is set.
        models: Returns the models in a run directory, by variant and seed.
        results: Returns tables for the terminal.
        is_empty: Checks whether a run has nothing to report, in which case an error is raised at once.
        chosen: Options that the verb chose itself. A resumed run keeps them.
        stays_complete: Whether repeating the command of a complete run does nothing.
        is_estimated: Whether the time and memory are estimated at the start.
        on_several_processes: Whether the verb can be started by `torchrun`.
    """

    manifest: Manifest
    lines: Sequence[str]
    tasks: Sequence[Task[Any]] = ()
    recipe: object = None
    folder: Path | None = None
    refuse: Callable[[Path], None] | None = None
    discard: Callable[[Path], None] | None = None
    models: Callable[[Path], Mapping[str, Path]] = lambda _: {}
    results: Callable[[Run], Sequence[str]] = lambda _: ()
    is_empty: Callable[[Run], bool] = has_no_rows
    chosen: Mapping[str, object] = field(default_factory=dict)
    stays_complete: bool = True
    is_estimated: bool = False
    on_several_processes: bool = False


@contextmanager
def start_run(description: RunDescription) -> Iterator[Study]:
    """Start or resume the run of the current verb, and write its report at the end.

    If a `MeasureError` is raised inside the context, the report is written first.

    Raises:
        StudyFinishedError: If this is a dry run, or if the run is already complete.
        RunError: If the directory contains another run.
        TrainError: If `torchrun` started a verb that only runs in one process.
    """
    call = current_call()
    if not is_alone():
        if not description.on_several_processes:
            raise TrainError(f"{call.verb.name} runs in one process. Start it without torchrun.")
        use_own_accelerator()
    run_option: Path | None = call.options.get("run")
    folder = description.folder or run_option or default_folder(description.manifest, description.recipe)
    if call.dry_run:
        _describe(call, description, folder)
        raise StudyFinishedError(folder)
    if not is_first_process():
        yield Study(folder, Silent())
        return
    overwrite = bool(call.options.get("overwrite"))
    if description.refuse is not None and not overwrite:
        description.refuse(folder)
    published = TrainedModels.to_push(call.options, description.models(folder)) if call.options.get("push") else None
    refusal: MeasureError | None = None
    with _closed_after(_begin(call, description, folder), call.reporter) as run:
        if overwrite:
            (folder / COMPLETE).unlink(missing_ok=True)
            if description.discard is not None:
                description.discard(folder)
        _announce(description, run, call.reporter)
        is_done = _is_complete(call, description, run)
        if not is_done:
            if description.is_estimated and (remaining := _remaining(description, folder, run)):
                call.reporter.log(_describe_cost(call, remaining))
            try:
                yield Study(folder, call.reporter, run)
            except MeasureError as error:
                if description.is_empty(run):
                    raise
                refusal = error
            if refusal is None and is_alone() and description.stays_complete and description.folder is None:
                write_whole(folder / COMPLETE, _digest(call, description))
        for text in description.results(run):
            call.reporter.result(text)
        write_report(run, call.reporter)
        if published is not None:
            published.publish(call.reporter)
    if refusal is not None:
        raise refusal
    if is_done:
        raise StudyFinishedError(folder)


def write_report(run: Run, reporter: Reporter) -> None:
    data = report_data(run)
    reporter.result(summary(data))
    pages.write(run.report, pages.render(data))
    reporter.result(f"report: {run.report}")


def _describe(call: Invocation, description: RunDescription, folder: Path) -> None:
    overwrite = bool(call.options.get("overwrite"))
    if description.refuse is not None and not overwrite:
        description.refuse(folder)
    for text in description.lines:
        call.reporter.result(text)
    if overwrite or not is_run(folder):
        remaining = _remaining(description, folder / "new" if overwrite else folder, None)
        if remaining:
            call.reporter.result(_describe_cost(call, remaining))
    else:
        with Run.open(folder) as run:
            remaining = _remaining(description, folder, run)
            if remaining and not _is_complete(call, description, run):
                call.reporter.result(_describe_cost(call, remaining))
    call.reporter.result(f"run directory: {folder}")


def _begin(call: Invocation, description: RunDescription, folder: Path) -> Run:
    # `layerwise run RUN` resumes with these options and must not discard the run.
    options = {**call.options, "overwrite": False}
    recorded = call.verb.given(options)
    if "model" in options and "model" not in recorded and options["model"] is not None:
        recorded = {"model": description.manifest.model, **recorded}
    experiment = {"experiment": call.verb.name, **recorded, **description.chosen}
    manifest: Manifest = replace(description.manifest, command=tuple(sys.argv), experiment=experiment)
    if call.options.get("overwrite") and description.folder is None:
        return Run.create(folder, manifest, overwrite=True)
    return Run.resume_or_create(folder, manifest)


def _announce(description: RunDescription, run: Run, reporter: Reporter) -> None:
    for text in description.lines:
        reporter.log(text)
    reporter.log(f"run directory: {run.folder}")
    stored = run.store.count_losses()
    if stored:
        reporter.log(f"resumed: {stored:,} rows are stored already")
    for change in run.changes:
        reporter.log(f"note: {change}")


def _digest(call: Invocation, description: RunDescription) -> bytes:
    options = {name: value for name, value in call.verb.given(call.options).items() if name not in UNMEASURED_OPTIONS}
    content = [call.verb.name, options, description.recipe, description.manifest.measured(), __version__]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest().encode()


def _is_complete(call: Invocation, description: RunDescription, run: Run) -> bool:
    path = run.folder / COMPLETE
    if not is_alone() or not path.is_file() or description.is_empty(run) or _remaining(description, run.folder, run):
        return False
    return path.read_bytes() == _digest(call, description)


def _remaining(description: RunDescription, folder: Path, run: Run | None) -> list[Remaining]:
    counted = (task.remaining(folder, run) for task in description.tasks)
    return [each for each in counted if each is not None]


def _describe_cost(call: Invocation, remaining: Sequence[Remaining]) -> str:
    is_timed = is_alone() and call.options.get("ray") is None
    try:
        return describe_remaining(remaining, timed=is_timed)
    except LayerwiseError as refusal:
        return f"{describe_remaining(remaining, timed=False)}; not timed: {refusal}"


@contextmanager
def _closed_after(run: Run, reporter: Reporter) -> Iterator[Run]:
    handler = signal.getsignal(signal.SIGINT)
    try:
        with run:
            try:
                yield run
            except KeyboardInterrupt:
                # A second Ctrl-C must not interrupt closing the run.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                reporter.log(
                    f"stopped: {run.store.count_losses():,} rows, finished models and checkpoints are stored; to "
                    "resume, run the same command again"
                )
                raise
    finally:
        if signal.getsignal(signal.SIGINT) is not handler:
            signal.signal(signal.SIGINT, handler)
