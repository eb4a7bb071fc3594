"""`layerwise convert`: a published checkpoint of ELC-BERT or LTG-BERT as a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.screen import output, write
from layerwise.errors import ModelError

# The words of `layerwise.models.elc`, which is too heavy to import for a help text; a test compares them.
PUBLISHED = ("elc", "elc-base", "zero", "normalized", "weighted-output", "ltg")


def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The checkpoint: safetensors, or torch's .bin or .pt.")],
    variant: Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(PUBLISHED)}.")],
    tokenizer: Annotated[str, typer.Option(metavar="PATH", help="The one it was trained with, for the padding id.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write.")],
    heads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Attention heads; by default one for each 64 of the width.")
    ] = None,
) -> None:
    """Write a published checkpoint of ELC-BERT or LTG-BERT as a folder that transformers opens.

    Nothing but tensors is read from the file. Which of the published files it was trained with cannot be seen in it, so
    it is named by --variant.

    [dim]layerwise convert model.bin --variant elc-base --tokenizer FOLDER --out elc[/]
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(f"{out} is there already and is not empty; name a new folder with --out")
    from layerwise.cli.model import hush
    from layerwise.data.tokenizer import load_tokenizer
    from layerwise.models import convert_elc
    from layerwise.models.elc.convert import read_checkpoint

    hush()
    words = load_tokenizer(tokenizer)
    model = convert_elc(read_checkpoint(file), variant=variant, heads=heads, tokenizer=words)
    model.save_pretrained(out)
    words.save_pretrained(out)
    write(output, f"{out}: {variant}, {model.num_parameters():,} parameters")
