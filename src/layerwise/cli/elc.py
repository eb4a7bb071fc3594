"""`layerwise train elc`: a masked language model from random weights, with and without learned layer weights."""

from __future__ import annotations

from layerwise.cli import knobs
from layerwise.cli.options import Device, OwnRun, Quiet, TestText, Tokenizer, TrainingText, ValidationText, names
from layerwise.cli.screen import errors, write
from layerwise.errors import TrainError


def elc(
    text: TrainingText = None,
    validation: ValidationText = None,
    test: TestText = None,
    size: knobs.Size = "tiny",
    variants: knobs.Variants = knobs.VARIANTS,
    initialisation: knobs.Initialisation = None,
    vocabulary: knobs.Vocabulary = None,
    seeds: knobs.Seeds = 1,
    steps: knobs.Steps = None,
    epochs: knobs.Epochs = None,
    seconds: knobs.Seconds = None,
    batch: knobs.Batch = None,
    accumulation: knobs.Accumulation = None,
    learning_rate: knobs.LearningRate = None,
    precision: knobs.Precision = None,
    checks: knobs.Checks = None,
    compiled: knobs.Compiled = False,
    extra: knobs.Extra = None,
    run: OwnRun = None,
    fresh: knobs.FreshModels = False,
    seed: knobs.SplitSeed = 0,
    quiet: Quiet = False,
    tokenizer: Tokenizer = None,
    device: Device = "auto",
) -> None:
    """Pretrain ELC-BERT and its backbone on a text: a tokenizer, the models, what they know, their layer weights.

    Killed or stopped, the same command goes on where it was. Without a text it reads one that every machine has.

    [dim]layerwise train elc[/]                                minutes on two cores

    [dim]layerwise train elc --text babylm_10M --validation babylm_dev --test babylm_test[/]

    [dim]layerwise train elc --text FOLDER --size small --precision bfloat16 --seeds 3[/]

    [dim]torchrun --nproc-per-node 8 -m layerwise train elc --text FOLDER --size base[/]
    """
    knobs.check_length(epochs=epochs, steps=steps, seconds=seconds)
    changes = knobs.given(
        batch=batch, accumulation=accumulation, learning_rate=learning_rate, precision=precision, checks=checks,
        steps=steps, seconds=seconds, compiled=compiled or None, vocabulary=vocabulary,
    )  # fmt: skip
    if vocabulary is not None and tokenizer is not None:
        raise TrainError(f"--vocabulary is of a tokenizer that is learned, and {tokenizer} is one already; give either")
    arguments = knobs.trainer_arguments(extra, device)
    if not quiet:
        write(errors, "loading torch")
    from layerwise.cli.corpora import Corpora
    from layerwise.cli.pretraining import hold, programme_of, recipes_of
    from layerwise.train.arguments import check_arguments

    check_arguments(arguments)
    programme = programme_of(
        recipes_of(size, names(variants), initialisation, changes), seeds, Corpora(text, validation, test, seed),
        tokenizer, epochs=epochs, device=device, arguments=arguments, quiet=quiet,
    )  # fmt: skip
    hold(programme, run, seed=seed, fresh=fresh, quiet=quiet)
