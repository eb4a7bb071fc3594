"""`layerwise diagnose`: which layers matter, with a null and an interval beside every score."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.emission import Emission, emit, is_run
from layerwise.cli.options import (
    RUN,
    SEED,
    BatchTokens,
    Device,
    Dtype,
    Fresh,
    Layers,
    Length,
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
from layerwise.errors import MeasureError, RunError
from layerwise.measure.examination import CURVE_TOKENS, PARTS, Examination
from layerwise.measure.study import BATCH_TOKENS
from layerwise.plan.growth.allocation import LEVELS, MARGIN, SHARPNESS

QUESTIONS = {"rich_help_panel": "What is asked"}
SCHEDULE = {"rich_help_panel": "A schedule of growth training"}

IMPORTANCE = ("ablation", "racing")
"""The parts of a diagnosis that measure what skipping a layer costs, which a schedule is made from."""


def diagnose(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A hub id, a folder, or [bold]demo[/]; a run, for a schedule from it."),
    ],
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
        float | None,
        typer.Option(
            metavar="NATS",
            help=f"The smallest effect that counts, in nats per token; {MARGIN:g}, or RUN's own.",
            **QUESTIONS,
        ),
    ] = None,
    curve_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Tokens for curves and sets of layers.", **QUESTIONS)
    ] = CURVE_TOKENS,
    thorough: Annotated[
        bool,
        typer.Option("--thorough", help="Let every layer recover, alone and with the model.", **QUESTIONS),
    ] = False,
    emit_schedule: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one that trains layers by their importance, in YAML.", **SCHEDULE),
    ] = None,
    spend: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help=f"Of all layer-steps, at most; by default shares go as effect ** {SHARPNESS:g}.",
            **SCHEDULE,
        ),
    ] = None,
    levels: Annotated[
        int,
        typer.Option(
            min=1, max=1_000, metavar="N", help="Equal parts of the training, so many phases at most.", **SCHEDULE
        ),
    ] = LEVELS,
    run: OwnRun = None,
    fresh: Fresh = False,
    seed: Annotated[
        int,
        typer.Option(
            **SEED, metavar="N", help="Draws the text, the noise, the twins and the bootstrap.", rich_help_panel=RUN
        ),
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

    [dim]layerwise diagnose runs/SmolLM2-135M-20260131T120000Z --emit-schedule growth.yaml[/]
    """
    emission = Emission(emit_schedule, levels, spend, margin) if emit_schedule is not None else None
    if is_run(model):
        _check_run(model, emission, {"--text": text, "--parts": parts, "--budget": budget, "--run": run})
        assert emission is not None
        emit(Path(model), emission)
        return
    smallest = MARGIN if margin is None else margin
    asked = Examination(
        names(parts) or PARTS, length, tokens, batch_tokens, curve_tokens, budget, smallest, thorough, seed
    )  # fmt: skip
    if emission is not None and not set(IMPORTANCE) & set(asked.parts):
        raise MeasureError(f"a schedule is made from what skipping each layer costs: add {IMPORTANCE[0]} to --parts")
    corpus = text_of(model, text)
    if not quiet:
        write(errors, f"loading {model}")
    # From here on it takes torch: whatever could be refused without it has been.
    from layerwise.cli.consultation import consult
    from layerwise.cli.model import open_model

    stack = open_model(model, tokenizer, layers, device, dtype, revision, trust_remote_code)
    folder = consult(stack, corpus, asked, run, fresh=fresh, quiet=quiet)
    if emission is not None:
        emit(folder, emission)


def _check_run(model: str, emission: Emission | None, unread: dict[str, object]) -> None:
    """Raise `RunError` unless a schedule is asked for, and nothing that a finished run has no use for."""
    if emission is None:
        raise RunError(
            f"{model} is the folder of a run, not a model; for what it found write layerwise report {model}, for a "
            f"schedule from it layerwise diagnose {model} --emit-schedule FILE"
        )
    surplus = [flag for flag, value in unread.items() if value is not None]
    if surplus:
        raise RunError(
            f"{model} is the folder of a run, whose rows are read and nothing is measured: leave out "
            f"{' and '.join(surplus)}, or give a model"
        )
