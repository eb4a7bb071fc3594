"""The knobs of a training, as options: each overrides one field of its recipe, or one choice of a method."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer

from layerwise.cli.options import RUN, SEED
from layerwise.errors import TrainError

# Those of `layerwise.data.augmentation`, which is too heavy for a help text.
AUGMENTATIONS = ("none", "crop", "crop+flip")

TRAINING = "The training"
METHOD = "The method"

Seeds = Annotated[
    int,
    typer.Option(
        min=1, max=1_000, metavar="N", help="Trainings of every kind, each with its seed.", rich_help_panel=TRAINING
    ),
]
Epochs = Annotated[
    float | None, typer.Option(metavar="X", help="How often each image or text is read.", rich_help_panel=TRAINING)
]
Batch = Annotated[int | None, typer.Option(min=1, metavar="N", help="Examples a step.", rich_help_panel=TRAINING)]
Accumulation = Annotated[int | None, typer.Option(min=1, metavar="N", help="Passes a step.", rich_help_panel=TRAINING)]
LearningRate = Annotated[
    float | None, typer.Option(metavar="X", help="The optimiser's, where it is highest.", rich_help_panel=TRAINING)
]
Schedule = Annotated[
    Literal["linear", "cosine", "constant"] | None,
    typer.Option(help="How the rate ends.", rich_help_panel=TRAINING),
]
Augmentation = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"Of training images: {', '.join(AUGMENTATIONS)}.", rich_help_panel=TRAINING),
]
Precision = Annotated[
    Literal["float32", "bfloat16", "float16"] | None,
    typer.Option(metavar="NAME", help="Of the forward pass: float32, bfloat16, float16.", rich_help_panel=TRAINING),
]
Checks = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Validations a training.", rich_help_panel=TRAINING)
]
Drop = Annotated[
    float | None,
    typer.Option(metavar="X", help="Share of layers that LayerDrop leaves out.", rich_help_panel=METHOD),
]
Reach = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Places that a shuffled layer may move; by default any.", rich_help_panel=METHOD
    ),
]
Skipping = Annotated[
    Literal["together", "apart", "preserved"],
    typer.Option(
        metavar="NAME",
        help="Layers left out on several processes: together (the same), apart (each its own), preserved (silent).",
        rich_help_panel=METHOD,
    ),
]
PositionTable = Annotated[
    Literal["per-layer", "shared"],
    typer.Option(help="Of layershuffle-position; shared as in its published code.", rich_help_panel=METHOD),
]
PredictionLoss = Annotated[
    Literal["sum", "mean"],
    typer.Option(help="Of layershuffle-predict, over layers; mean as in its code.", rich_help_panel=METHOD),
]
PredictionReads = Annotated[
    Literal["first", "mean"],
    typer.Option(help="The token it reads; mean as in its code.", rich_help_panel=METHOD),
]
Extra = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any of transformers' TrainingArguments; may be given several times.",
        rich_help_panel=TRAINING,
    ),
]
Alone = Annotated[bool, typer.Option("--alone", help="Train no baseline beside them.", rich_help_panel=TRAINING)]

VARIANTS = "ltg,elc"
"""What is pretrained unless `--variants` says otherwise: the backbone, and the paper's layer weights."""

PRETRAINING = "The model that is pretrained"
SIZES = ("tiny", "small", "base")
"""Those of `layerwise.train.pretraining`, which is too heavy for a help text; a test compares them."""

Size = Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(SIZES)}.", rich_help_panel=PRETRAINING)]
Variants = Annotated[
    str, typer.Option(metavar="NAMES", help="Ways to connect the layers, by commas.", rich_help_panel=PRETRAINING)
]
Initialisation = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="How layer weights begin: biased, zero, identity.", rich_help_panel=PRETRAINING),
]
Vocabulary = Annotated[
    int | None,
    typer.Option(
        min=1, max=2**20, metavar="N", help="Tokens of the tokenizer that is learned; not with --tokenizer.",
        rich_help_panel=PRETRAINING,
    ),
]  # fmt: skip
Steps = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Steps of every training.", rich_help_panel=TRAINING)
]
Seconds = Annotated[
    float | None,
    typer.Option(metavar="X", help="In place of steps: as many as fit, timed first.", rich_help_panel=TRAINING),
]
Compiled = Annotated[bool, typer.Option("--compile", help="With torch.compile.", rich_help_panel=TRAINING)]

FreshModels = Annotated[
    bool, typer.Option("--fresh", help="Discard the models and rows of the run folder.", rich_help_panel=RUN)
]
SplitSeed = Annotated[
    int, typer.Option(**SEED, metavar="N", help="Draws the splits and the questions.", rich_help_panel=RUN)
]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given, by name; those that were left out keep what the recipe has.

    >>> given(batch=8, learning_rate=None)
    {'batch': 8}
    """
    return {name: value for name, value in options.items() if value is not None}


def check_length(**lengths: float | None) -> None:
    """Raise `TrainError` where more than one of the options that say how long to train was given."""
    if len(given(**lengths)) > 1:
        *first, last = (f"--{name}" for name in lengths)
        raise TrainError(f"{', '.join(first)} and {last} each say how long to train; give one of them")


def trainer_arguments(texts: list[str] | None, device: str) -> dict[str, Any]:
    """`NAME=VALUE` texts as `TrainingArguments` by name; values are read as JSON where they are JSON.

    Raises `TrainError` for a text of another form.

    >>> trainer_arguments(["report_to=tensorboard", "dataloader_num_workers=4", "fsdp=full_shard"], "auto")
    {'report_to': 'tensorboard', 'dataloader_num_workers': 4, 'fsdp': 'full_shard'}
    """
    found: dict[str, Any] = {"use_cpu": True} if device == "cpu" else {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise TrainError(f"--set takes NAME=VALUE, as in --set report_to=tensorboard; found {text!r}")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found
