"""`layerwise sweep`: measure many plans on one model and text, and write the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.options import (
    RUN,
    SEED,
    BatchTokens,
    Device,
    Dtype,
    Fresh,
    Layers,
    Length,
    ModelName,
    OwnRun,
    Quiet,
    Revision,
    Text,
    Tokenizer,
    Tokens,
    TrustRemoteCode,
    names,
    text_of,
)  # fmt: skip
from layerwise.cli.screen import errors, write
from layerwise.measure.study import BATCH_TOKENS, DEFAULT_FAMILIES, Study
from layerwise.plan import FAMILIES

# The parts of the help text.
PLANS, BENCHMARKS = ({"rich_help_panel": name} for name in ("The plans", "Benchmarks of lm-eval"))


def sweep(
    model: ModelName,
    text: Text = None,
    tokens: Tokens = None,
    length: Length = None,
    batch_tokens: BatchTokens = BATCH_TOKENS,
    families: Annotated[
        str, typer.Option(metavar="NAMES", help=f"Comma-separated, from: {', '.join(FAMILIES)}.", **PLANS)
    ] = ",".join(DEFAULT_FAMILIES),
    plan: Annotated[
        list[str] | None, typer.Option(metavar="PLAN", help="A plan of your own; may be given again.", **PLANS)
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Comma-separated; needs layerwise\\[eval].", **BENCHMARKS)
    ] = None,
    task_folder: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A folder with lm-eval task files.", **BENCHMARKS)
    ] = None,
    task_limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Examples of each, for a first look.", **BENCHMARKS)
    ] = None,
    run: OwnRun = None,
    fresh: Fresh = False,
    no_similarity: Annotated[
        bool,
        typer.Option("--no-similarity", help="Do not compare the hidden states of the layers.", rich_help_panel=RUN),
    ] = False,
    seed: Annotated[
        int, typer.Option(**SEED, metavar="N", help="Draws the text, the masks and the bootstrap.", rich_help_panel=RUN)
    ] = 0,
    quiet: Quiet = False,
    tokenizer: Tokenizer = None,
    layers: Layers = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure many plans on one model and text, with intervals, and write a report.

    Killed or stopped, the same command goes on where it was.

    [dim]layerwise sweep demo[/]

    [dim]layerwise sweep HuggingFaceTB/SmolLM2-135M --text book.txt --families painters[/]

    [dim]layerwise sweep ./my-model --text texts/ --plan "0-13 18-29" --plan "0-29 0-29"[/]
    """
    study = Study(
        names(families), tuple(plan or ()), length, tokens, batch_tokens, seed, names(tasks), task_folder, task_limit,
        not no_similarity,
    )  # fmt: skip
    corpus = text_of(model, text)
    if not quiet:
        write(errors, f"loading {model}")
    # From here on it takes torch: whatever could be refused without it has been.
    from layerwise.cli.model import open_model
    from layerwise.cli.sitting import sit

    stack = open_model(model, tokenizer, layers, device, dtype, revision, trust_remote_code)
    sit(stack, corpus, study, run, fresh=fresh, quiet=quiet)
