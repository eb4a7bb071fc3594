"""`layerwise train growth`: a model is trained in phases, each on the layers that a schedule says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from layerwise.cli import knobs
from layerwise.cli.growth_choice import check_choice
from layerwise.cli.options import (
    MODEL,
    Device,
    Layers,
    OwnRun,
    Quiet,
    Revision,
    TestText,
    Tokenizer,
    TrainingText,
    ValidationText,
)
from layerwise.cli.screen import errors, write
from layerwise.errors import TrainError

GROWING = "The schedule"

GrowingModel = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="A checkpoint, or a config.json alone, which begins from random weights; by default a tiny Granite.",
        rich_help_panel=MODEL,
    ),
]
FromScratch = Annotated[
    bool, typer.Option("--from-scratch", help="Draw a checkpoint's weights anew.", rich_help_panel=MODEL)
]
Window = Annotated[
    int | None,
    typer.Option(
        "--length",
        min=2,
        metavar="N",
        help="Tokens in a window; 256, of the tiny model 128.",
        rich_help_panel="The text",
    ),
]
Passes = Annotated[
    float,
    typer.Option(metavar="X", help="How often the text may be read, at most.", rich_help_panel="The text"),
]
Terms = Literal["tokens", "flops", "seconds"]

PASSES = 2.0
"""What is read more often is learned by heart, and says nothing of a schedule."""


def growth(
    model: GrowingModel = None,
    text: TrainingText = None,
    validation: ValidationText = None,
    test: TestText = None,
    schedule: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="uniform, published, freezing, stacking, lisa, ramp; importance; or a YAML file.",
            rich_help_panel=GROWING,
        ),
    ] = "published",
    importance: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="For importance: a run of layerwise diagnose.", rich_help_panel=GROWING),
    ] = None,
    equal: Annotated[
        Terms,
        typer.Option(help="What it takes as much of as uniform's steps.", rich_help_panel=GROWING),
    ] = "flops",
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what it does and costs; train nothing.", rich_help_panel=GROWING)
    ] = False,
    alone: Annotated[
        bool, typer.Option("--alone", help="Train no uniform beside it.", rich_help_panel=GROWING)
    ] = False,
    seeds: knobs.Seeds = 1,
    steps: knobs.Steps = None,
    epochs: knobs.Epochs = None,
    passes: Passes = PASSES,
    batch: knobs.Batch = None,
    accumulation: knobs.Accumulation = None,
    learning_rate: knobs.LearningRate = None,
    precision: knobs.Precision = None,
    checks: knobs.Checks = None,
    extra: knobs.Extra = None,
    from_scratch: FromScratch = False,
    length: Window = None,
    run: OwnRun = None,
    fresh: knobs.FreshModels = False,
    seed: knobs.SplitSeed = 0,
    quiet: Quiet = False,
    tokenizer: Tokenizer = None,
    layers: Layers = None,
    device: Device = "auto",
    revision: Revision = None,
) -> None:
    """Train a model in phases, each on the layers that a schedule says, and uniformly beside it.

    --steps and --epochs are uniform's; --equal says what the phases take as much of. Without a model and a text: a tiny
    one from random weights, on text that every machine has. Killed or stopped, the same command goes on where it was.

    [dim]layerwise train growth --explain[/]                   what the published phases do, and what they cost

    [dim]layerwise train growth --schedule stacking --seeds 3[/]

    [dim]layerwise train growth --model CHECKPOINT --text FOLDER --schedule importance --importance RUN[/]
    """
    choice = check_choice(schedule, importance)
    knobs.check_length(steps=steps, epochs=epochs)
    if explain and equal == "seconds":
        raise TrainError("--explain trains nothing, and seconds are known by training; explain it with --equal flops")
    given = knobs.given(
        batch=batch, accumulation=accumulation, learning_rate=learning_rate, precision=precision, checks=checks
    )
    arguments = knobs.trainer_arguments(extra, device)
    if not quiet:
        write(errors, f"loading {model or 'torch'}")
    from layerwise.cli.corpora import Corpora
    from layerwise.cli.growth_course import Asked, explained, hold
    from layerwise.cli.pupil import pupil_of
    from layerwise.train.arguments import check_arguments

    check_arguments(arguments)
    pupil = pupil_of(
        model, Corpora(text, validation, test, seed), tokenizer, layers, length=length, device=device,
        revision=revision, from_scratch=from_scratch, say=lambda said: None if quiet else write(errors, said),
    )  # fmt: skip
    asked = Asked.of(pupil, choice, given, steps=steps, epochs=epochs, seeds=seeds, equal=equal, passes=passes)
    if explain:
        explained(pupil, asked)
        return
    hold(pupil, asked, arguments, alone=alone, folder=run, seed=seed, fresh=fresh, quiet=quiet)
