"""The options that several verbs share, with one spelling and one help text each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise.stack.load import DEVICES, DTYPES

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="A hub id, a folder, or [bold]demo[/].")]
Layers = Annotated[str | None, typer.Option(help="Dotted path of the list of blocks, where it is not found by itself.")]
Tokenizer = Annotated[
    str | None, typer.Option(metavar="FOLDER_OR_FILE", help="A tokenizer, where the model has none beside it.")
]
Device = Annotated[str, typer.Option(help=f"One of {', '.join(DEVICES)}.")]
Dtype = Annotated[str, typer.Option(help=f"One of {', '.join(DTYPES)}; auto is the checkpoint's, float32 on a CPU.")]
Revision = Annotated[str | None, typer.Option(help="A branch, tag or commit of a hub model.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with the model. Off unless you ask.")
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]


def names(text: str | None) -> tuple[str, ...]:
    """A comma-separated option as a tuple.

    >>> names("painters, leave_one_out")
    ('painters', 'leave_one_out')
    """
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
