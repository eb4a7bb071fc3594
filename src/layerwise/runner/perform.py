"""Start, resume, stop and report any experiment; one that is complete computes nothing."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from layerwise import __version__
from layerwise import page as pages
from layerwise.errors import LayerwiseError, MeasureError, RunError, TrainError
from layerwise.results import Manifest, Run
from layerwise.results.run import is_run, write_whole
from layerwise.runner.experiment import Experiment, Inputs
from layerwise.runner.opening import folder_of
from layerwise.runner.option import plain
from layerwise.runner.price import describe_remaining
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.result import Result
from layerwise.runner.steps import Completed, Outline, Remaining, Steps, UnitSession, carry_out
from layerwise.runner.summary import report_data, summary
from layerwise.runner.trained_models import TrainedModels
from layerwise.train.processes import is_alone, is_first_process, use_own_accelerator

COMPLETE = "complete"
"""The file in a run folder that says of which options the run is complete."""

_HOW = ("run", "overwrite", "ray", "workers")


def perform(config: Experiment, reporter: Reporter | None = None, inputs: Inputs | None = None) -> Result:
    """Carry an experiment out, or resume it, and write its report; the result reads the run folder.

    `inputs` are opened objects that replace what the options name. Raises the errors of opening and of units; a
    `MeasureError` after rows were stored is raised once the report is written.
    """
    reporter, inputs = reporter or Silent(), inputs or Inputs()
    if not is_alone():
        raise TrainError(f"{config.VERB} runs on one process; start it without torchrun")
    use_own_accelerator()
    with outlined(config, reporter, inputs) as (outline, steps):
        folder = folder_for(config, outline)
        if is_first_process():
            _perform(config, outline, steps, UnitSession(folder, reporter))
        else:
            carry_out(steps, UnitSession(folder, Silent()), collective_only=True)
    return Result(folder)


def describe(config: Experiment, reporter: Reporter, inputs: Inputs | None = None) -> None:
    """Report what `perform` would compute, what it costs, and where it would go; time one piece of it at most."""
    with outlined(config, reporter, inputs or Inputs()) as (outline, _):
        folder = folder_for(config, outline)
        if not config.overwrite:
            outline.refuse(folder)
        for text in outline.says():
            reporter.result(text)
        with _stored(config, folder) as run:
            # Of what is to be discarded nothing is finished: as in a folder that there is not.
            remaining = _remaining(outline, folder / "new" if config.overwrite else folder, run)
            if remaining and (run is None or not _is_complete(config, outline, run)):
                reporter.result(_cost(config, remaining))
    reporter.result(f"run folder: {folder}")


@contextmanager
def outlined(config: Experiment, reporter: Reporter, inputs: Inputs) -> Iterator[tuple[Outline, Steps]]:
    _check_folder(config.run)
    with closing(config.begin(reporter, inputs)) as steps:
        outline = next(steps)
        assert isinstance(outline, Outline), "the outline comes first"
        yield outline, steps


def _check_folder(folder: Path | None) -> None:
    candidates = () if folder is None else (folder, *folder.parents)
    first = next((path for path in candidates if path.exists()), None)
    if first is not None and not first.is_dir():
        raise RunError(f"--run must be a folder, got {folder} ({first} is not a folder). Choose another one.")


def folder_for(config: Experiment, outline: Outline) -> Path:
    return outline.folder or config.run or folder_of(outline.manifest, outline.recipe)


def _perform(config: Experiment, outline: Outline, steps: Steps, session: UnitSession) -> None:
    folder, reporter = session.folder, session.reporter
    if not config.overwrite:
        outline.refuse(folder)
    options = {name: getattr(config, name, None) for name in ("push", "private", "overwrite", "model")}
    published = TrainedModels.to_push(options, {} if options["push"] is None else outline.models(folder))
    refusal: MeasureError | None = None
    with _interrupts_restored(), _begin(config, outline, folder) as run:
        session.opened = run
        if config.overwrite:
            (folder / COMPLETE).unlink(missing_ok=True)
            outline.discard(folder)
        _announce(outline, run, reporter)
        if not _is_complete(config, outline, run):
            if outline.is_estimated and (remaining := _remaining(outline, folder, run)):
                reporter.log(_cost(config, remaining))
            with _interruptible(run, reporter):
                refusal = _complete(config, outline, steps, session, run)
        for text in outline.results(run):
            reporter.result(text)
        _write_report(run, reporter)
        if published is not None:
            published.publish(reporter)
    if refusal is not None:
        raise refusal


def _complete(
    config: Experiment, outline: Outline, steps: Steps, session: UnitSession, run: Run
) -> MeasureError | None:
    try:
        finished = carry_out(steps, session)
    except MeasureError as error:
        finished = Completed(refusal=error)
    assert finished is not None, "the first process carries everything out"
    finished.store(run.store)
    if finished.refusal is not None and outline.is_empty(run):
        raise finished.refusal
    if finished.refusal is None and is_alone() and outline.lasts and outline.folder is None:
        write_whole(session.folder / COMPLETE, _completed(config, outline))
    return finished.refusal


def _completed(config: Experiment, outline: Outline) -> bytes:
    options = {name: value for name, value in plain(config).items() if name not in _HOW}
    content = [config.VERB, options, outline.recipe, outline.manifest.measured(), __version__]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest().encode()


def _is_complete(config: Experiment, outline: Outline, run: Run) -> bool:
    path = run.folder / COMPLETE
    if not is_alone() or not path.is_file() or outline.is_empty(run) or _remaining(outline, run.folder, run):
        return False
    return path.read_bytes() == _completed(config, outline)


def _remaining(outline: Outline, folder: Path, run: Run | None) -> list[Remaining]:
    counted = (unit.remaining(folder, run) for unit in outline.ahead)
    return [each for each in counted if each is not None]


def _cost(config: Experiment, remaining: Sequence[Remaining]) -> str:
    is_timed = is_alone() and getattr(config, "ray", None) is None
    try:
        return describe_remaining(remaining, timed=is_timed)
    except LayerwiseError as refusal:
        return f"{describe_remaining(remaining, timed=False)}; not timed: {refusal}"


@contextmanager
def _stored(config: Experiment, folder: Path) -> Iterator[Run | None]:
    if config.overwrite or not is_run(folder):
        yield None
        return
    with Run.open(folder) as run:
        yield run


def _begin(config: Experiment, outline: Outline, folder: Path) -> Run:
    # A run is resumed from its manifest, which must not discard it again.
    experiment = {"experiment": config.VERB, **plain(replace(config, overwrite=False)), **outline.chosen}
    manifest: Manifest = replace(outline.manifest, command=tuple(sys.argv), experiment=experiment)
    if config.overwrite and outline.folder is None:
        return Run.create(folder, manifest, overwrite=True)
    return Run.resume_or_create(folder, manifest)


def _announce(outline: Outline, run: Run, reporter: Reporter) -> None:
    for text in outline.says():
        reporter.log(text)
    reporter.log(f"run folder: {run.folder}")
    stored = run.store.count_losses()
    if stored:
        reporter.log(f"resumed: {stored:,} rows are stored already; the rest is computed now")
    for change in run.changes:
        reporter.log(f"note: {change}")


def _write_report(run: Run, reporter: Reporter) -> None:
    data = report_data(run)
    reporter.result(summary(data))
    pages.write(run.report, pages.render(data))
    reporter.result(f"report: {run.report}")


@contextmanager
def _interrupts_restored() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not handler:
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _interruptible(run: Run, reporter: Reporter) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        # Only the run is left to close; a second Ctrl-C would hinder that.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        reporter.log(
            f"stopped: {run.store.count_losses():,} rows, finished models and checkpoints are kept; run the same "
            "command again to resume"
        )
        raise
