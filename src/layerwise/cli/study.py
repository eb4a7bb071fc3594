"""`layerwise study`: a question that takes many trainings, asked with its controls, and the verdict."""

from __future__ import annotations

from typing import Any

import typer

from layerwise.cli import knobs
from layerwise.cli.options import Device, OwnRun, Quiet, Tokenizer, TrainingText

STEPS = 400
"""Steps of every training of the tiny model, so that the whole study takes less than half an hour on two cores."""

study = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Ask what takes many trainings to answer, with its controls; the verdict has its interval.

    [dim]layerwise study layer-weights[/]
    """,
)


@study.command("layer-weights")
def layer_weights(
    text: TrainingText = None,
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
    from layerwise.cli.weight_study import hold
    from layerwise.train.weight_study import arms

    chosen = {
        "steps": steps or (STEPS if size == "tiny" else None), "batch": batch, "accumulation": accumulation,
        "learning_rate": learning_rate, "precision": precision,
    }  # fmt: skip
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    hold(
        arms(size, **given), seeds, text, tokenizer, arguments=knobs.trainer_arguments(extra, device), folder=run,
        fresh=fresh, seed=seed, quiet=quiet, device=device,
    )  # fmt: skip
