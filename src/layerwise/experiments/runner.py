"""The one way in which every experiment is carried out: started, resumed, stopped and reported.

`perform` names the run folder, opens its store, announces what is computed and what it costs, passes Ctrl-C on, and
writes the report. An experiment that was killed goes on when it is performed again.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from layerwise import report as pages
from layerwise.errors import LayerwiseError, MeasureError
from layerwise.experiments.cluster.ranks import assist, measuring
from layerwise.experiments.cluster.workers import as_workers_compute, is_spread, spread_over
from layerwise.experiments.experiment import Experiment, Inputs, Prepared
from layerwise.experiments.forecast.forecast import Forecast, forecast, held_against
from layerwise.experiments.interchange.trained_models import TrainedModels
from layerwise.experiments.option import plain
from layerwise.experiments.provenance import folder_of
from layerwise.experiments.reporter import Reporter, Silent
from layerwise.experiments.result import Result
from layerwise.experiments.summary import report_data, summary
from layerwise.results import Manifest, Run
from layerwise.results.run import is_run
from layerwise.train.processes import is_alone, is_first_process, use_own_accelerator


def perform(config: Experiment, reporter: Reporter | None = None, inputs: Inputs | None = None) -> Result:
    """Carry an experiment out, or resume it, and write its report; the result reads the run folder.

    `inputs` are opened objects that stand in place of what the options name. Raises what `Experiment.prepare` and
    `Prepared.measure` refuse; a `MeasureError` that comes after rows were stored is raised once the report is written.
    """
    reporter, inputs = reporter or Silent(), inputs or Inputs()
    use_own_accelerator()
    with as_workers_compute(config):
        prepared = config.prepare(reporter, inputs)
        with spread_over(config, prepared, inputs, reporter):
            return _performed(config, prepared, reporter)


def _performed(config: Experiment, prepared: Prepared, reporter: Reporter) -> Result:
    """Carry a prepared experiment out, or resume it."""
    folder = folder_for(config, prepared)
    if not is_first_process():
        prepared.train(folder, Silent())
        assist(prepared)
        return Result(folder)
    if not config.overwrite:
        prepared.check(folder)
    published = TrainedModels.of(config, prepared, folder)
    discards_rows = config.overwrite and prepared.folder is None
    refusal: MeasureError | None = None
    with _interrupts_restored(), _begin(folder, _manifest(config, prepared), discards_rows) as run:
        if config.overwrite:
            prepared.discard(folder)
        _announce(prepared, run, reporter)
        with _interruptible(run, reporter):
            expected = _forecast(config, prepared, folder, run, reporter, reporter.log)
            with held_against(expected, run, reporter):
                try:
                    prepared.train(folder, reporter)
                    with measuring(prepared):
                        prepared.measure(run, reporter)
                except MeasureError as error:
                    if prepared.is_empty(run):
                        raise
                    refusal = error
        for text in prepared.results(run):
            reporter.result(text)
        _write_report(run, reporter)
        if published is not None:
            published.publish(reporter)
    if refusal is not None:
        raise refusal
    return Result(folder)


def describe(config: Experiment, reporter: Reporter, inputs: Inputs | None = None) -> None:
    """Report what `perform` would compute, what it costs, and where it would go; compute nothing."""
    with as_workers_compute(config):
        prepared = config.prepare(reporter, inputs or Inputs())
        folder = folder_for(config, prepared)
        if not config.overwrite:
            prepared.check(folder)
        for text in prepared.describe():
            reporter.result(text)
        with _stored(config, folder) as run:
            # Of what is to be discarded nothing is finished: as in a folder that there is not.
            new = folder / "new" if config.overwrite else folder
            _forecast(config, prepared, new, run, reporter, reporter.result)
    reporter.result(f"run folder: {folder}")


def folder_for(config: Experiment, prepared: Prepared) -> Path:
    """The run folder: that of an existing run, the one that was named, or one named by what is computed."""
    return prepared.folder or config.run or folder_of(prepared.manifest, prepared.recipe)


def _forecast(
    config: Experiment, prepared: Prepared, folder: Path, run: Run | None, reporter: Reporter,
    say: Callable[[str], None],
) -> Forecast | None:  # fmt: skip
    """What is left to do will take this; `None` where that is short. What several processes do is not forecast.

    What a piece of the work refuses is left to the work itself to refuse: other rows may be stored before it.
    """
    works = list(prepared.works(folder, run))
    if not works:
        return None
    if is_spread(config) or not is_alone():
        say("no forecast: the work is shared by several processes, and one alone does not know their pace")
        return None
    try:
        expected = forecast(works, reporter.progress)
    except LayerwiseError as refusal:
        say(f"no forecast: {refusal}")
        return None
    if expected is not None:
        say(str(expected))
    return expected


@contextmanager
def _stored(config: Experiment, folder: Path) -> Iterator[Run | None]:
    """The run that there is in a folder, to be read; `None` where there is none, or it is to be discarded."""
    if config.overwrite or not is_run(folder):
        yield None
        return
    with Run.open(folder) as run:
        yield run


def _manifest(config: Experiment, prepared: Prepared) -> Manifest:
    # A run is resumed from its manifest, which must not discard it again.
    experiment = {"experiment": config.VERB, **plain(replace(config, overwrite=False))}
    return replace(prepared.manifest, command=tuple(sys.argv), experiment=experiment)


def _begin(folder: Path, manifest: Manifest, overwrite: bool) -> Run:
    return Run.create(folder, manifest, overwrite=True) if overwrite else Run.resume_or_create(folder, manifest)


def _announce(prepared: Prepared, run: Run, reporter: Reporter) -> None:
    for text in prepared.describe():
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
    """Give Ctrl-C back once the run is closed: in a notebook the process lives on."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not handler:
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _interruptible(run: Run, reporter: Reporter) -> Iterator[None]:
    """Say what Ctrl-C leaves behind; it goes on as `KeyboardInterrupt`."""
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
