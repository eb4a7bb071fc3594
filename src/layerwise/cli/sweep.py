"""`layerwise sweep`: measure many plans on one model and text, and write the report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from layerwise import report as pages
from layerwise.cli.options import (
    Device,
    Dtype,
    Layers,
    ModelName,
    Revision,
    Tokenizer,
    TrustRemoteCode,
    names,
)  # fmt: skip
from layerwise.cli.report import headline, report_data
from layerwise.cli.screen import SweepBar, duration, errors, output
from layerwise.data.corpus import Corpus, read_corpus
from layerwise.data.demo import demo_corpus
from layerwise.data.tokenizer import load_tokenizer
from layerwise.errors import DataError
from layerwise.measure.reading import BATCH_TOKENS, read
from layerwise.measure.study import DEFAULT_FAMILIES, Study, Watcher, conduct, folder_of, manifest_of
from layerwise.measure.sweep import bill, with_identity
from layerwise.plan.families import FAMILIES
from layerwise.results import Run
from layerwise.stack.load import load


def sweep(
    model: ModelName,
    text: Annotated[Path | None, typer.Option(help="A text file, or a folder of them. Not needed for demo.")] = None,
    families: Annotated[str, typer.Option(help=f"Comma-separated, from: {', '.join(FAMILIES)}.")] = ",".join(
        DEFAULT_FAMILIES
    ),
    plan: Annotated[list[str] | None, typer.Option(help="A plan of your own; may be given again.")] = None,
    run: Annotated[Path | None, typer.Option(help="The run folder; by default named by what is measured.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the rows of the run folder.")] = False,
    tokens: Annotated[int | None, typer.Option(min=1, help="Score at most so many, spread over documents.")] = None,
    length: Annotated[int | None, typer.Option(min=2, help="The longest window, in tokens.")] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens that run together.")] = BATCH_TOKENS,
    tasks: Annotated[str | None, typer.Option(help="lm-eval benchmarks; needs layerwise\\[eval].")] = None,
    task_folder: Annotated[Path | None, typer.Option(help="A folder with lm-eval task files.")] = None,
    task_limit: Annotated[int | None, typer.Option(min=1, help="Examples per benchmark, for a first look.")] = None,
    similarity: Annotated[bool, typer.Option(help="Also compare the hidden states of all layers.")] = True,
    seed: Annotated[int, typer.Option(help="Seeds the choice of text, the masks and the bootstrap.")] = 0,
    tokenizer: Tokenizer = None,
    layers: Layers = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the result and nothing else.")] = False,
) -> None:
    """Measure many plans on one model and text, with intervals, and write a report.

    Killed or stopped, the same command goes on where it was.

    [dim]layerwise sweep demo[/]
    [dim]layerwise sweep HuggingFaceTB/SmolLM2-135M --text book.txt --families painters[/]
    [dim]layerwise sweep ./my-model --text texts/ --families leave_one_out --plan "0-13 18-29"[/]
    """
    say: Callable[[str], None] = _silence if quiet else errors.print
    study = Study(
        names(families), tuple(plan or ()), length, tokens, batch_tokens, seed, names(tasks), task_folder, task_limit,
        similarity,
    )  # fmt: skip
    corpus = _corpus(model, text)
    given = load_tokenizer(tokenizer, trust_remote_code=trust_remote_code) if tokenizer else None
    stack = load(
        model, layers=layers, tokenizer=given, device=device, dtype=dtype, revision=revision,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    reading = read(stack, corpus, length=length, tokens=tokens, batch_tokens=batch_tokens, seed=seed)
    plans = with_identity(stack, study.members(stack.depth))
    manifest = manifest_of(stack, reading, study, tuple(sys.argv))
    folder = run or folder_of(manifest)
    start = Run.create(folder, manifest, fresh=True) if fresh else Run.resume_or_create(folder, manifest)
    with start as opened:
        left = bill(stack, plans, reading, opened.store.finished)
        say(f"{stack.source.name}: {stack.depth} layers, {stack.dtype}, {stack.device}".replace("torch.", ""))
        say(f"{reading.name}: {reading.documents} documents, {reading.tokens:,} scored tokens")
        say(
            f"{left.plans} plans: {left.naive:,} layer evaluations one by one, {left.evaluations:,} at least; "
            f"the sweep does the least ({left.naive / left.evaluations:.2f} x fewer)"
        )
        for change in opened.changes:
            say(f"[yellow]note[/] {change}")
        try:
            with SweepBar(quiet) as bar:
                conduct(stack, reading, study, opened, Watcher(say, bar.update))
        except KeyboardInterrupt:
            errors.print(f"stopped: {opened.store.count_losses():,} rows are kept; the same command goes on from here")
            raise typer.Exit(130) from None
        _say_cost(opened, say)
        data = report_data(opened)
        pages.write(opened.report, pages.render(data))
        output.print(headline(data), markup=False, soft_wrap=True)
        output.print(f"report: {opened.report}", markup=False, soft_wrap=True)


def _corpus(model: str, text: Path | None) -> Corpus:
    if text is not None:
        return read_corpus(text)
    if model == "demo":
        return demo_corpus()
    raise DataError("a sweep needs a text to score: --text FILE_OR_FOLDER (only the demo brings its own)")


def _say_cost(run: Run, say: Callable[[str], None]) -> None:
    figures = {score.metric: score.value for score in run.store.scores("run")}
    if figures:
        say(f"sweep: {duration(figures['seconds'])}, {figures['states_live']:.0f} states live at most")


def _silence(text: str) -> None:
    """Says nothing."""
