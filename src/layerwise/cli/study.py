"""`layerwise study`: a question that takes many trainings, asked with its controls, and the verdict."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from layerwise.cli import knobs
from layerwise.cli.options import RUN, Device, OwnRun, Quiet, Tokenizer, TrainingText
from layerwise.cli.train import settings_of
from layerwise.errors import TrainError, near_matches

TOPICS = ("layer-weights",)
STEPS = 400
"""Steps of every training of the tiny model, so that the whole study takes less than half an hour on two cores."""


def study(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help=f"One of: {', '.join(TOPICS)}.")],
    text: TrainingText = None,
    size: knobs.Size = None,
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Seeds of every arm.", rich_help_panel=knobs.TRAINING)
    ] = 3,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Steps of every training; of tiny by default {STEPS}.",
            rich_help_panel=knobs.TRAINING,
        ),
    ] = None,
    batch: knobs.Batch = None,
    accumulation: knobs.Accumulation = None,
    learning_rate: knobs.LearningRate = None,
    precision: knobs.Precision = None,
    extra: knobs.Extra = None,
    run: OwnRun = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Discard the models and rows of the run folder.", rich_help_panel=RUN)
    ] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Draws the splits of the text.", rich_help_panel=RUN)] = 0,
    quiet: Quiet = False,
    tokenizer: Tokenizer = None,
    device: Device = "auto",
) -> None:
    """Ask whether learned layer weights are worth it: with and without them, and how they begin.

    At equal steps and at equal seconds; weights in pretraining, in fine-tuning, in both; whether seeds learn the same.
    Every difference has its interval over seeds. Killed or stopped, the same command goes on where it was.

    [dim]layerwise study layer-weights[/]                       the tiny model, on text that every machine has

    [dim]layerwise study layer-weights --text FOLDER --size small --seeds 5[/]
    """  # fmt: skip
    if topic not in TOPICS:
        raise TrainError(f"there is no study {topic!r}; {near_matches(topic, TOPICS)}")
    from layerwise.cli.weight_study import hold
    from layerwise.train.weight_study import arms

    chosen = {
        "steps": steps or (STEPS if size in (None, "tiny") else None), "batch": batch, "accumulation": accumulation,
        "learning_rate": learning_rate, "precision": precision,
    }  # fmt: skip
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    arguments = {**({"use_cpu": True} if device == "cpu" else {}), **settings_of(extra or [])}
    hold(
        arms(size or "tiny", **given), seeds, text, tokenizer,
        arguments=arguments, folder=run, fresh=fresh, seed=seed, quiet=quiet, device=device,
    )  # fmt: skip
