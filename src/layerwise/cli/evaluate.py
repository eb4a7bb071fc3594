"""`layerwise evaluate`: what language models know: minimal pairs as they are, and tasks they are fine-tuned on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from layerwise.bounded import kind_of, named
from layerwise.cli.options import RUN, SEED, Device, Dtype, OwnRun, Quiet, Revision, Tokenizer, TrustRemoteCode, names
from layerwise.cli.screen import errors, write
from layerwise.errors import DataError, near_matches

ASKED = "What is asked"

# Those of `layerwise.cli.exam`, which is too heavy for a help text; a test compares them.
SUITES = ("pairs", "blimp", "supplement", "ewok", "glue", "msgs", "msgs-ours")
FINE_TUNED = ("glue", "msgs", "msgs-ours")
"""The suites that models are fine-tuned on; the others are scored as they are."""


def evaluate(
    model: Annotated[
        str, typer.Argument(metavar="RUN_OR_MODEL", help="A run with trained models, a hub id, a folder, or demo.")
    ],
    suite: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help=f"Of {', '.join(SUITES)}, or files of pairs, by commas.", rich_help_panel=ASKED
        ),
    ] = "pairs",
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where published suites lie; ours need none.", rich_help_panel=ASKED),
    ] = None,
    password: Annotated[
        str | None, typer.Option(metavar="WORD", help="Of EWoK's locked archive.", rich_help_panel=ASKED)
    ] = None,
    temperature: Annotated[
        float, typer.Option(metavar="X", help="Of the softmax that scores a sentence.", rich_help_panel=ASKED)
    ] = 1.0,
    too_long: Annotated[
        Literal["refuse", "skip"],
        typer.Option(help="What is done about sentences longer than the model's positions.", rich_help_panel=ASKED),
    ] = "refuse",
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Pairs of a paradigm, examples of a fine-tuned task.", rich_help_panel=ASKED
        ),
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Of the fine-tuned tasks these alone: cola,rte.", rich_help_panel=ASKED),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, max=1_000, metavar="N", help="Fine-tunings of each model on a task.", rich_help_panel=ASKED
        ),
    ] = 3,
    seed: Annotated[
        int, typer.Option(**SEED, metavar="N", help="Draws our own pairs, and selection sets.", rich_help_panel=ASKED)
    ] = 0,
    run: OwnRun = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Judge these suites of pairs anew.", rich_help_panel=RUN)
    ] = False,
    quiet: Quiet = False,
    tokenizer: Tokenizer = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Ask language models which of two sentences they prefer, or fine-tune them on a task; masked or causal.

    Of a run every trained model is asked, and the rows go into that run. Chance on a pair is 0.5.

    [dim]layerwise evaluate demo[/]

    [dim]layerwise evaluate runs/elc --suite pairs,blimp,glue --data FOLDER[/]

    [dim]layerwise evaluate runs/elc --suite glue --tasks cola,rte --data FOLDER[/]

    [dim]layerwise evaluate bert-base-cased --suite my_pairs.jsonl[/]
    """
    asked = names(suite)
    check_suites(asked, data)
    only = names(tasks)
    if only and not set(asked) & set(FINE_TUNED):
        raise DataError(
            f"--tasks chooses among those that models are fine-tuned on; ask for one of {', '.join(FINE_TUNED)}"
        )
    if not quiet:
        write(errors, f"loading {model}")
    from layerwise.cli.exam import Exam, Opening, Sources

    sources = Sources(asked, only, data, password, limit, seed)
    opening = Opening(tokenizer, device, dtype, revision, trust_remote_code)
    exam = Exam(sources, opening, temperature, too_long, seeds, fresh=fresh, quiet=quiet)
    exam.of(model, run)


def check_suites(asked: tuple[str, ...], data: Path | None) -> None:
    """Raise `DataError` for what is no suite and no file, and for a suite whose files nobody said the place of."""
    if not asked:
        raise DataError(f"--suite names nothing; give one or more of {', '.join(SUITES)}, or a file of pairs")
    for name in asked:
        if name not in SUITES and kind_of(name) == "nothing":
            raise DataError(f"there is no suite and no file {named(name)!r}; {near_matches(name, SUITES)}")
        if name in SUITES and name not in ("pairs", "msgs-ours") and data is None:
            raise DataError(f"{name} is not part of layerwise: give the folder that holds its files, --data FOLDER")
