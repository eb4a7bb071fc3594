"""The options that several verbs share, with one spelling and one help text each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from layerwise.data.corpus import Corpus, read_corpus
from layerwise.data.demo import demo_corpus
from layerwise.errors import DataError
from layerwise.measure.study import SEEDS

# The words of `layerwise.stack.load`, which is too heavy to import for a help text; a test compares them.
DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")
DTYPES = ("auto", "float32", "float16", "bfloat16", "float64")

# The heading of these options in a help text.
MODEL = "The model"

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="A hub id, a folder, or [bold]demo[/].")]
Layers = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Its list of blocks, where that is not found.", rich_help_panel=MODEL),
]
Tokenizer = Annotated[
    str | None, typer.Option(metavar="PATH", help="Where there is none beside it.", rich_help_panel=MODEL)
]
Device = Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(DEVICES)}.", rich_help_panel=MODEL)]
Dtype = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"One of {', '.join(DTYPES)}; auto is the checkpoint's, float32 on a CPU.",
        rich_help_panel=MODEL,
    ),
]
Revision = Annotated[
    str | None, typer.Option(metavar="NAME", help="A branch, tag or commit of a hub model.", rich_help_panel=MODEL)
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with it.", rich_help_panel=MODEL)
]
# The headings of what verbs that measure have in common.
TEXT = "The text"
RUN = "The run"

DATA = "What is read"

SEED: Any = {"min": 0, "max": SEEDS - 1}
"""The bounds of a seed."""

Text = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="A file, or a folder of them; demo brings its own.", rich_help_panel=TEXT),
]
Tokens = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Score at most so many, spread over documents.", rich_help_panel=TEXT),
]
Length = Annotated[
    int | None,
    typer.Option(min=2, metavar="N", help="The longest window; by default 512 tokens.", rich_help_panel=TEXT),
]
BatchTokens = Annotated[int, typer.Option(min=1, metavar="N", help="Tokens that run together.", rich_help_panel=TEXT)]
Images = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE", help="A folder of class folders, a dataset of the hub, or digits.", rich_help_panel=DATA
    ),
]
TrainingText = Annotated[
    Path | None, typer.Option(metavar="PATH", help="A file, or a folder of them.", rich_help_panel=DATA)
]
ValidationText = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Looked at while training; by default a share of --text.", rich_help_panel=DATA),
]
TestText = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="Reported; by default half of --validation, or a share of --text.", rich_help_panel=DATA
    ),
]
TrainingLength = Annotated[
    int | None,
    typer.Option(min=2, metavar="N", help="Tokens in a window of text; by default 256.", rich_help_panel=DATA),
]
Unreadable = Annotated[
    Literal["refuse", "skip"],
    typer.Option(help="What is done about images that cannot be read.", rich_help_panel=DATA),
]
Limit = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="At most so many images a split.", rich_help_panel=DATA)
]
OwnRun = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Its folder; by default named by what is measured.", rich_help_panel=RUN),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Discard the rows of the run folder.", rich_help_panel=RUN)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result and nothing else.", rich_help_panel=RUN)]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]


def text_of(model: str, text: Path | None) -> Corpus:
    """The text that a verb reads: the one that was named, or the demo's own."""
    if text is not None:
        return read_corpus(text)
    if model == "demo":
        return demo_corpus()
    raise DataError("a text to score is needed: --text FILE_OR_FOLDER (only the demo brings its own)")


def names(text: str | None) -> tuple[str, ...]:
    """A comma-separated option as a tuple.

    >>> names("painters, leave_one_out")
    ('painters', 'leave_one_out')
    """
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
