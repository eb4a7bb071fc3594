"""`layerwise train elc`: pretrain ELC-BERT, its backbone and their variants on a text, and compare them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from layerwise.errors import OptionError
from layerwise.runner.arguments import (
    Device,
    Location,
    Metavar,
    Names,
    PathLike,
    Range,
    Rare,
    Seed,
    Settings,
    TextLike,
    to_path,
)
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.result import Result
from layerwise.runner.training_options import TrainingData, drop_none, resolve_precision, trainer_arguments
from layerwise.runner.verb import check_push, spell, verb
from layerwise.train.precision import Precision


@verb(
    "train elc",
    group="Training",
    examples=(
        "",
        "--text babylm_10M --validation babylm_dev --test babylm_test",
        "--text FOLDER --size small --precision bfloat16 --seeds 3",
        "--variants ltg,elc,elc-frozen,elc-bias-2,zero --seeds 3",
    ),
)
def elc(
    text: TextLike = None,
    *,
    variants: Names = ("ltg", "elc"),
    size: Literal["tiny", "small", "base"] = "tiny",
    seeds: Annotated[int, Range(least=1, most=1_000)] = 1,
    steps: Annotated[int | None, Range(least=1)] = None,
    epochs: Annotated[float | None, Range(above=0)] = None,
    seconds: Annotated[float | None, Range(above=0)] = None,
    learning_rate: Annotated[float | None, Range(above=0)] = None,
    batch_size: Annotated[int | None, Range(least=1)] = None,
    validation: Rare[PathLike] = None,
    test: Rare[PathLike] = None,
    tokenizer: Rare[Location] = None,
    vocabulary: Rare[Annotated[int | None, Range(least=1, most=2**20)]] = None,
    padding_free: Rare[bool] = False,
    gradient_accumulation: Rare[Annotated[int | None, Range(least=1)]] = None,
    precision: Rare[Precision | None] = None,
    compile: Rare[bool] = False,
    evals: Rare[Annotated[int | None, Range(least=1)]] = None,
    set: Settings = (),
    push: Rare[Annotated[str | None, Metavar("ORG/NAME")]] = None,
    private: Rare[bool] = False,
    device: Rare[Device] = "auto",
    run: PathLike = None,
    overwrite: bool = False,
    seed: Seed = 0,
    reporter: Reporter | None = None,
) -> Result:
    """Pretrain ELC-BERT and its backbone on a text and compare them.

    Held-out losses, minimal pairs and layer weights are compared. With several seeds, every difference from the
    backbone has an interval over seeds. The default text is the documentation in Python's standard library. To resume
    an interrupted run, run the same command again.

    Args:
        text: Text file, a folder of them, or hf:DATASET.
        variants: Model variants; suffixes change the initial layer weights or the share of the text, such as
            elc-bias-2, elc-identity, elc-frozen or elc-share-0.5.
        size: Size of the models and their training recipe.
        seeds: Number of random seeds.
        steps: Number of optimizer steps.
        epochs: Number of epochs.
        seconds: Length of each training run in seconds, converted to steps by timing a few.
        learning_rate: Peak learning rate.
        batch_size: Batch size.
        validation: Text for selecting checkpoints.
        test: Text for the reported results.
        tokenizer: Tokenizer (default: learn one from the text).
        vocabulary: Vocabulary size of the learned tokenizer.
        padding_free: Skip padding everywhere but in attention.
        gradient_accumulation: Number of forward passes per optimizer step.
        precision: Precision of the forward pass: float32, bfloat16 or float16.
        compile: Compile the blocks with torch.compile.
        evals: Number of evaluations on validation data.
        set: Hugging Face TrainingArguments to change; repeat for more.
        push: Hub repo id (a prefix for several models).
        private: Make the hub repository private.
        device: Device: auto, cpu, cuda, mps or xpu.
        run: Run directory (default: derived from options).
        overwrite: Discard the results of an earlier run.
        seed: Random seed.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The result with losses, minimal pairs, layer weights and costs by variant and seed, and their differences.

    Raises:
        OptionError: If options cannot be combined.
        TrainError: If a variant or a training argument is unknown, or if the text is smaller than a batch.
    """
    arguments = trainer_arguments(set, device=device)
    if not variants:
        raise OptionError(f"at least one variant is required. Pass, for example, {spell('variants')} ltg,elc.")
    lengths = {"steps": steps, "epochs": epochs, "seconds": seconds}
    given = [spell(name) for name, value in lengths.items() if value is not None]
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} cannot be combined. Pass one of them.")
    if vocabulary is not None and tokenizer is not None:
        raise OptionError(f"{spell('vocabulary')} and {spell('tokenizer')} cannot be combined. Pass one of them.")
    check_push(push, private=private)
    from layerwise.data.suites.generated import generate_pairs
    from layerwise.runner.minimal_pairs import format_pairs
    from layerwise.runner.opening import open_given_text
    from layerwise.runner.study import RunDescription, start_run
    from layerwise.runner.tasks import MeasureTask
    from layerwise.runner.training_runs import discard_trainings
    from layerwise.studies.train_elc.evaluation import PAIRS, evaluate_pretrained
    from layerwise.studies.train_elc.trainings import make_recipe, prepare_pretrainings

    reporter = reporter or Silent()
    path, corpus = open_given_text(text)
    data = TrainingData(path, to_path(validation), to_path(test))
    settings = drop_none(
        compiled=compile or None,
        batch_size=batch_size,
        gradient_accumulation_steps=gradient_accumulation,
        precision=resolve_precision(precision, arguments, device=device, run=to_path(run)),
        evals=evals,
        learning_rate=learning_rate,
        steps=steps,
        seconds=seconds,
        padding_free=padding_free or None,
        vocabulary=vocabulary,
    )
    every = prepare_pretrainings(
        tuple(make_recipe(size, name, **settings) for name in dict.fromkeys(variants)),
        data,
        reporter,
        corpus,
        seeds=seeds,
        seed=seed,
        tokenizer=tokenizer,
        device=device,
        arguments=arguments,
        epochs=epochs,
    )
    by_text = every.by_share(data, reporter, corpus, seed=seed)

    def refuse(folder: Path) -> None:
        for pretrainings in by_text:
            pretrainings.refuse(folder)

    described = RunDescription(
        manifest=every.manifest(seed),
        lines=list(every.describe()),
        tasks=by_text,
        recipe=every.shared_recipe(),
        refuse=refuse,
        discard=discard_trainings,
        models=every.find_models,
        results=lambda run: [format_pairs(run, generate_pairs(PAIRS))],
        on_several_processes=True,
    )
    with start_run(described) as study:
        for pretrainings in by_text:
            study.execute(pretrainings)
        study.execute(MeasureTask(partial(evaluate_pretrained, pretrainings=by_text[0])))
    return Result(study.folder)
