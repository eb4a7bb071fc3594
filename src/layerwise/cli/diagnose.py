"""`layerwise diagnose`: which layers matter, with a null and an interval beside every score."""

from __future__ import annotations

from typing import Annotated

import typer

from layerwise.cli.options import (
    RUN,
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
from layerwise.measure.examination import CURVE_TOKENS, PARTS, Examination
from layerwise.measure.study import BATCH_TOKENS

QUESTIONS = {"rich_help_panel": "What is asked"}


def diagnose(
    model: ModelName,
    text: Text = None,
    tokens: Tokens = None,
    length: Length = None,
    batch_tokens: BatchTokens = BATCH_TOKENS,
    parts: Annotated[
        str | None, typer.Option(metavar="NAMES", help=f"Some of: {', '.join(PARTS)}; else all.", **QUESTIONS)
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Race: stop reading for a layer whose verdict is settled, after N tokens at the latest.",
            **QUESTIONS,
        ),
    ] = None,
    margin: Annotated[
        float, typer.Option(metavar="NATS", help="The smallest effect that counts, in nats per token.", **QUESTIONS)
    ] = 0.01,
    curve_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Tokens for curves and sets of layers.", **QUESTIONS)
    ] = CURVE_TOKENS,
    thorough: Annotated[
        bool,
        typer.Option("--thorough", help="Let every layer recover, alone and with the model.", **QUESTIONS),
    ] = False,
    run: OwnRun = None,
    fresh: Fresh = False,
    seed: Annotated[
        int,
        typer.Option(metavar="N", help="Draws the text, the noise, the twins and the bootstrap.", rich_help_panel=RUN),
    ] = 0,
    quiet: Quiet = False,
    tokenizer: Tokenizer = None,
    layers: Layers = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Ask which layers of a model matter, with a null and an interval beside every score.

    Ends with what became of the published claims, and writes a report.
    Killed or stopped, the same command goes on where it was.

    [dim]layerwise diagnose demo[/]

    [dim]layerwise diagnose HuggingFaceTB/SmolLM2-135M --text book.txt[/]

    [dim]layerwise diagnose ./my-model --text texts/ --parts racing --budget 50000[/]
    """
    asked = Examination(
        names(parts) or PARTS, length, tokens, batch_tokens, curve_tokens, budget, margin, thorough, seed
    )  # fmt: skip
    corpus = text_of(model, text)
    if not quiet:
        write(errors, f"loading {model}")
    # From here on it takes torch: whatever could be refused without it has been.
    from layerwise.cli.consultation import consult
    from layerwise.cli.model import open_model

    stack = open_model(model, tokenizer, layers, device, dtype, revision, trust_remote_code)
    consult(stack, corpus, asked, run, fresh=fresh, quiet=quiet)
