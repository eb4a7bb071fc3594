"""`layerwise save`: a model under a plan, written as an ordinary checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.options import MODEL, Device, Layers, Quiet, Revision, Tokenizer, TrustRemoteCode
from layerwise.cli.screen import errors, write
from layerwise.errors import CheckpointError
from layerwise.plan import Plan
from layerwise.results.run import MANIFEST


def save(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A hub id, a folder, [bold]demo[/] or demo-vit.")],
    plan: Annotated[str, typer.Option(metavar="PLAN", help='Which layers, in which order: "0-3 6-11".')],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write.")],
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace the model that is in the folder.")] = False,
    quiet: Quiet = False,
    tokenizer: Tokenizer = None,
    layers: Layers = None,
    device: Device = "auto",
    dtype: Annotated[
        str, typer.Option(metavar="NAME", help="Of its weights; auto is the checkpoint's.", rich_help_panel=MODEL)
    ] = "auto",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write a model under a plan as an ordinary checkpoint, its tokenizer beside it.

    It is loaded again and compared with the plan before it gets its name. Groups and halves of layers have no place in
    an ordinary checkpoint. Layers of several models: layerwise merge --save.

    [dim]layerwise save demo --plan "0-3 6-11" --to shallow[/]      two layers left out

    [dim]layerwise save org/name --plan "0-11 8-31" --to deeper[/]  four layers twice, as copies
    """
    wanted = Plan.parse(plan)
    if (Path(model).expanduser() / MANIFEST).is_file():
        raise CheckpointError(
            f"{model} is a run, which may hold several models; give the folder of one, such as "
            f"{model}/layershuffle/seed-0/model"
        )
    if not quiet:
        write(errors, f"loading {model}")
    from layerwise.cli.writing import open_as_stored, write_out

    write_out(
        open_as_stored(model, tokenizer, layers, device, dtype, revision, trust_remote_code), wanted, to, fresh=fresh
    )
