"""One sitting of a sweep: from a stack and a corpus to the report, said as it goes.

A sitting may end at any moment. Ctrl-C leaves a run that the same command carries on, and a plan whose numbers are not
finite spoils neither the report nor the other plans.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from layerwise import report as pages
from layerwise.cli.findings import headline, report_data
from layerwise.cli.screen import SweepBar, duration, errors, output, write
from layerwise.data.corpus import Corpus
from layerwise.errors import MeasureError
from layerwise.measure.conduct import Watcher, benchmarks_of, conduct, manifest_of
from layerwise.measure.effects import MEASURE as EFFECT
from layerwise.measure.provenance import folder_of
from layerwise.measure.reading import Reading, read, refuse_too_little
from layerwise.measure.study import Study
from layerwise.measure.sweep import bill, runnable, with_identity
from layerwise.plan import Plan
from layerwise.results import Manifest, Run
from layerwise.results.model_name import model_name
from layerwise.stack import Stack

Say = Callable[[str], None]


def sit(stack: Stack, corpus: Corpus, study: Study, folder: Path | None, *, fresh: bool, quiet: bool) -> None:
    """Carry `study` on into `folder`, or into one named by what is measured, and write its report.

    Raises `MeasureError` after the report is written when plans gave numbers that are not finite.
    """
    say = speaker(quiet)
    reading = read(
        stack, corpus, length=study.length, tokens=study.tokens, batch_tokens=study.batch_tokens, seed=study.seed
    )
    # Whatever can be refused is refused before there is a run folder.
    refuse_too_little(reading)
    members, left_out = runnable(stack, study.members(stack.depth))
    plans = with_identity(stack, members)
    benchmarks = benchmarks_of(study)
    manifest = manifest_of(stack, reading, study, tuple(sys.argv))
    folder = folder or folder_of(manifest)
    broken = None
    with begin(folder, manifest, fresh) as run, stopped_in_peace(run):
        _announce(stack, reading, plans, run, say)
        for said in left_out:
            say(f"note: {said}")
        try:
            with SweepBar(quiet) as bar:
                conduct(stack, reading, study, benchmarks, run, Watcher(say, bar.update))
        except MeasureError as error:
            if not run.store.scores(EFFECT):
                raise
            broken = error
        _write_report(run, say)
    if broken is not None:
        raise broken


@contextmanager
def stopped_in_peace(run: Run) -> Iterator[None]:
    """Say what Ctrl-C leaves; it goes on as `KeyboardInterrupt`, and the command ends with 130."""
    try:
        yield
    except KeyboardInterrupt:
        # What is left is to close the run; a second Ctrl-C would only hinder that.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        write(errors, f"stopped: {run.store.count_losses():,} rows are kept; the same command goes on from here")
        raise


def _announce(stack: Stack, reading: Reading, plans: tuple[Plan, ...], run: Run, say: Say) -> None:
    """Say what will be measured, and what that costs at least."""
    due = bill(stack, plans, reading, run.store.finished)
    say(f"{model_name(stack.source.name)}: {stack.depth} layers, {stack.dtype}, {stack.device}".replace("torch.", ""))
    documents = f"{reading.documents:,} document{'s' * (reading.documents != 1)}"
    say(f"{reading.name}: {documents}, {reading.tokens:,} scored tokens")
    say(
        f"{due.plans} plans: {due.naive:,} layer evaluations one by one, {due.evaluations:,} at least; "
        f"the sweep does the least ({due.naive / due.evaluations:.2f} x fewer)"
    )
    say(f"run folder: {run.folder}")
    kept = run.store.count_losses()
    if kept:
        rest = "nothing is left to sweep" if due.head_tokens == 0 else "the rest is computed now"
        say(f"resumed: {kept:,} rows are there already; {rest}")
    for change in run.changes:
        say(f"note: {change}")


def _write_report(run: Run, say: Say) -> None:
    figures = {score.metric: score.value for score in run.store.scores("run")}
    if "seconds" in figures:
        busy = (figures["seconds_in_layers"] + figures["seconds_in_heads"]) / figures["seconds"]
        say(
            f"sweep: {duration(figures['seconds'])}, {busy:.0%} of it in layers and heads; "
            f"{figures['evaluations_ratio']:.2f} x the least layer evaluations, "
            f"{figures['states_live']:.0f} states live at most"
        )
    data = report_data(run)
    write(output, headline(data))
    pages.write(run.report, pages.render(data))
    write(output, f"report: {run.report}")


def speaker(quiet: bool) -> Say:
    """Says sentences on the error stream, or nothing."""
    return (lambda text: None) if quiet else (lambda text: write(errors, text))


def begin(folder: Path, manifest: Manifest, fresh: bool) -> Run:
    """The run of `manifest` in `folder`: gone on with, or started; `fresh` discards what is there."""
    return Run.create(folder, manifest, fresh=True) if fresh else Run.resume_or_create(folder, manifest)
