"""`layerwise study`: a question that takes many trainings, asked with its controls, and the verdict."""

from __future__ import annotations

from typing import Annotated

import typer

from layerwise.cli import knobs
from layerwise.cli.asked import Asked
from layerwise.cli.growth import PASSES, FromScratch, GrowingModel, Passes, Window
from layerwise.cli.options import (
    Device,
    Layers,
    OwnRun,
    Quiet,
    Revision,
    TestText,
    Tokenizer,
    TrainingText,
    ValidationText,
    names,
)
from layerwise.cli.screen import errors, write
from layerwise.errors import TrainError
from layerwise.train.growth.study import ARMS

STEPS = 400
"""Steps of every training of the tiny model, so that the whole study takes less than half an hour on two cores."""

GROWTH_STEPS = 250
"""Steps of uniform in the study of growth of the tiny model: some 45 trainings, half an hour on one core."""

study = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Ask what takes many trainings to answer, with its controls; the verdict has its interval.

    [dim]layerwise study layer-weights[/]

    [dim]layerwise study growth[/]
    """,
)


@study.command("layer-weights", cls=Asked)
def layer_weights(
    text: TrainingText = None,
    validation: ValidationText = None,
    test: TestText = None,
    size: knobs.Size = "tiny",
    seeds: knobs.Seeds = 3,
    steps: knobs.Steps = None,
    batch: knobs.Batch = None,
    accumulation: knobs.Accumulation = None,
    learning_rate: knobs.LearningRate = None,
    precision: knobs.Precision = None,
    extra: knobs.Extra = None,
    run: OwnRun = None,
    fresh: knobs.FreshModels = False,
    seed: knobs.SplitSeed = 0,
    quiet: Quiet = False,
    tokenizer: Tokenizer = None,
    device: Device = "auto",
) -> None:
    """Ask whether learned layer weights are worth it: with and without them, and how they begin.

    At equal steps and at equal seconds; weights in pretraining, in fine-tuning, in both; whether seeds learn the same.
    Every difference has its interval over seeds. Killed or stopped, the same command goes on where it was.

    [dim]layerwise study layer-weights[/]       the tiny model, 400 steps, on text that every machine has

    [dim]layerwise study layer-weights --text FOLDER --size small --seeds 5[/]
    """
    from layerwise.cli.corpora import Corpora
    from layerwise.cli.weight_study import hold
    from layerwise.train.arguments import check_arguments
    from layerwise.train.weight_study import arms

    arguments = knobs.trainer_arguments(extra, device)
    check_arguments(arguments)
    given = knobs.given(
        steps=steps or (STEPS if size == "tiny" else None), batch=batch, accumulation=accumulation,
        learning_rate=learning_rate, precision=precision,
    )  # fmt: skip
    hold(
        arms(size, **given), seeds, Corpora(text, validation, test, seed), tokenizer, arguments=arguments, folder=run,
        fresh=fresh, quiet=quiet, device=device,
    )  # fmt: skip


@study.command("growth", cls=Asked)
def growth(
    model: GrowingModel = None,
    text: TrainingText = None,
    validation: ValidationText = None,
    test: TestText = None,
    arms: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help=f"Some of {', '.join(ARMS)}; else all.",
            rich_help_panel=knobs.METHOD,
        ),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="Learning rates to sweep, and beyond while the best is at an end; one alone is not swept. By default "
            "the usual one, its half and its double.",
            rich_help_panel=knobs.TRAINING,
        ),
    ] = None,
    pilots: Annotated[
        int,
        typer.Option(
            min=1, max=1_000, metavar="N", help="Seeds that every rate is tried with.", rich_help_panel=knobs.TRAINING
        ),
    ] = 1,
    seeds: knobs.Seeds = 3,
    steps: knobs.Steps = None,
    epochs: knobs.Epochs = None,
    passes: Passes = PASSES,
    batch: knobs.Batch = None,
    accumulation: knobs.Accumulation = None,
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
    """Ask whether training layers where they need it helps: a schedule, its controls, and uniform training.

    --steps and --epochs are uniform's; every arm spends as many operations, and is compared at equal operations, tokens
    and seconds. Learning rates are swept for both sides. Killed or stopped, the same command goes on where it was.

    [dim]layerwise study growth[/]              a tiny model from random weights, on text that every machine has

    [dim]layerwise study growth --model CONFIG --text FOLDER --steps 5000 --precision bfloat16[/]

    [dim]layerwise study growth --model CHECKPOINT --text FOLDER[/]      a trained model taken to a new domain
    """
    from layerwise.train.growth.study import FACTORS, check_arms

    chosen_arms = check_arms(names(arms) or ARMS)
    tried = _rates(rates)
    knobs.check_length(steps=steps, epochs=epochs)
    given = knobs.given(batch=batch, accumulation=accumulation, precision=precision, checks=checks)
    arguments = knobs.trainer_arguments(extra, device)
    if not quiet:
        write(errors, f"loading {model or 'torch'}")
    from dataclasses import replace

    from layerwise.cli.corpora import Corpora
    from layerwise.cli.growth_course import steps_of_epochs
    from layerwise.cli.growth_study import hold
    from layerwise.cli.pupil import pupil_of
    from layerwise.train.arguments import check_arguments
    from layerwise.train.growth.conduct import Study

    check_arguments(arguments)
    pupil = pupil_of(
        model, Corpora(text, validation, test, seed), tokenizer, layers, length=length, device=device,
        revision=revision, from_scratch=from_scratch, say=lambda said: None if quiet else write(errors, said),
    )  # fmt: skip
    settings = replace(pupil.settings, **given)
    if steps is None and epochs is None and model is None and text is None:
        steps = GROWTH_STEPS
    budget = steps or steps_of_epochs(pupil, settings, 1.0 if epochs is None else epochs)
    swept = tried or tuple(factor * settings.learning_rate for factor in FACTORS)
    asked = Study(chosen_arms, settings, swept, budget, seeds, passes, seed, pilots)
    hold(pupil, asked, arguments, folder=run, fresh=fresh, quiet=quiet)


def _rates(text: str | None) -> tuple[float, ...]:
    """Learning rates from an option, in ascending order. Raises `TrainError` for what is no rate above 0.

    >>> _rates("1e-3, 5e-4")
    (0.0005, 0.001)
    """
    try:
        found = sorted({float(word) for word in names(text)})
    except ValueError:
        found = [0.0]
    if found and not 0 < found[0] <= found[-1] < float("inf"):
        raise TrainError(f"--rates takes numbers above 0 by commas, as in 5e-4,1e-3,2e-3; found {text!r}")
    return tuple(found)
