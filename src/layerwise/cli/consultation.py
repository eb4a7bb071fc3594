"""One sitting of a diagnosis: from a stack and a corpus to the claims and the report, said as it goes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from layerwise import report as pages
from layerwise.cli.findings import headline, report_data
from layerwise.cli.screen import PartBar, duration, output, write
from layerwise.cli.sitting import begin, speaker, stopped_in_peace
from layerwise.data.corpus import Corpus
from layerwise.measure.examination import DESCRIBED, Examination
from layerwise.measure.examine import Watcher, examine, manifest_of
from layerwise.measure.provenance import folder_of
from layerwise.measure.reading import read, refuse_too_little
from layerwise.results.model_name import model_name
from layerwise.stack import Stack

ASKED = (
    "asked: which of its layers matter, and what explains it; with every score an interval, and a null, which is what "
    "would be found if there were nothing to find. Losses are in nats per token: 0.69 more is half as likely"
)
"""What a diagnosis is about, said before it begins."""


def consult(stack: Stack, corpus: Corpus, asked: Examination, folder: Path | None, *, fresh: bool, quiet: bool) -> Path:
    """Carry `asked` out into `folder`, or into one named by what is measured; print the claims, write the report.

    Returns the folder. Raises `MeasureError` for too little text to conclude anything from, before there is a run.
    """
    say = speaker(quiet)
    reading = read(
        stack, corpus, length=asked.length, tokens=asked.tokens, batch_tokens=asked.batch_tokens, seed=asked.seed
    )
    if not set(asked.parts) <= set(DESCRIBED):
        refuse_too_little(reading)
    manifest = manifest_of(stack, reading, asked, tuple(sys.argv))
    folder = folder or folder_of(manifest)
    start = time.perf_counter()
    with begin(folder, manifest, fresh) as run, stopped_in_peace(run):
        say(
            f"{model_name(stack.source.name)}: {stack.depth} layers, {stack.dtype}, {stack.device}".replace(
                "torch.", ""
            )
        )
        documents = f"{reading.documents:,} document{'s' * (reading.documents != 1)}"
        say(f"{reading.name}: {documents}, {reading.tokens:,} scored tokens")
        say(f"run folder: {run.folder}")
        say(ASKED)
        for change in run.changes:
            say(f"note: {change}")
        with PartBar(quiet) as bar:
            examine(stack, reading, asked, run, Watcher(say, bar.update))
        say(f"done in {duration(time.perf_counter() - start)}")
        data = report_data(run)
        write(output, headline(data))
        pages.write(run.report, pages.render(data))
        write(output, f"report: {run.report}")
    return folder
