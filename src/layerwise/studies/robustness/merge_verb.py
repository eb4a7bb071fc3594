"""`layerwise robustness merge`: merge trained models layer by layer, and compare the results with the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from layerwise.errors import ModelError
from layerwise.runner.arguments import (
    Count,
    Device,
    Dtype,
    Metavar,
    PathLike,
    Range,
    Rare,
    Seed,
    TextLike,
    Trait,
    to_path,
)
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.result import Result
from layerwise.runner.training_options import BadImages, HeldOut, TrainingData
from layerwise.runner.verb import verb


@verb(
    "robustness merge",
    group="Measuring",
    examples=("runs/vit-base-patch16-224-1a2b3c4d --draws 100", "FOLDER1 FOLDER2 --images FOLDER"),
)
def merge(
    models: Annotated[Sequence[str], Trait.REPEATED, Trait.LOCATION, Metavar("RUN_OR_MODEL")],
    text: TextLike = None,
    *,
    images: Annotated[str | None, Metavar("LOCATION")] = None,
    draws: Annotated[int, Range(least=1, most=100_000)] = 100,
    variant: Rare[Annotated[str | None, Metavar("NAME")]] = None,
    validation: Rare[PathLike] = None,
    test: Rare[PathLike] = None,
    on_bad_image: Rare[BadImages] = "refuse",
    max_length: Rare[Annotated[int | None, Range(least=2)]] = None,
    limit: Rare[Count | None] = None,
    select_on: Rare[HeldOut] = "held-out",
    device: Rare[Device] = "auto",
    dtype: Rare[Dtype] = "auto",
    run: PathLike = None,
    overwrite: bool = False,
    seed: Seed = 0,
    reporter: Reporter | None = None,
) -> Result:
    """Merge models by random choice of each layer and compare the results with the original models.

    Only models of the same training method are merged. They are named a, b, c, ... in the order given. To write one
    merged model, run `layerwise save MODELS --plan "a:0-5 b:6-11" --output FOLDER`.

    Args:
        models: Runs of `layerwise train robust`, folders, hub ids.
        text: Text file, a folder of them, or hf:DATASET.
        images: Folder of class folders, hub dataset, or digits.
        draws: Number of random merged models.
        variant: Use only the models of this training variant.
        validation: Text for selecting checkpoints.
        test: Text for the reported results.
        on_bad_image: Handling of unreadable images: refuse or skip.
        max_length: Maximum length of a text in tokens.
        limit: Maximum number of images per split.
        select_on: Examples for selecting checkpoints: held-out or reported.
        device: Device: auto, cpu, cuda, mps or xpu.
        dtype: Weight dtype. `auto` uses the checkpoint's dtype (float32 on CPU).
        run: Run directory (default: derived from options).
        overwrite: Discard the results of an earlier run.
        seed: Random seed.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The result with the accuracy of members, merged models and ensembles in each order. If all models are from one
        run, the rows are added to it.

    Raises:
        ModelError: If no variant has two models.
        RunError: If a model may have been trained on the test examples.
    """
    from layerwise.results.run import MANIFEST
    from layerwise.runner.opening import open_given_text, quiet_transformers
    from layerwise.runner.source_models import read_variants
    from layerwise.runner.study import RunDescription, start_run
    from layerwise.runner.training_runs import read_training_manifest
    from layerwise.studies.robustness import merging as steps

    reporter = reporter or Silent()
    quiet_transformers()
    variants = read_variants(models, variant, reporter)
    several = {name: members for name, members in variants.items() if len(members) > 1}
    if not several:
        raise ModelError(
            f"Merging requires at least two models of the same variant, got 1 of {', 1 of '.join(variants)}. Pass more "
            "models."
        )
    first_path = Path(models[0]).expanduser()
    trained_run = first_path if len(models) == 1 and (first_path / MANIFEST).is_file() else None
    recorded = None if trained_run is None else read_training_manifest(trained_run)
    first = next(iter(next(iter(several.values())).values()))
    open_one = partial(steps.open_source, device=device, dtype=dtype)
    stack = open_one(first)
    path, corpus = open_given_text(text)
    held_out = to_path(validation), to_path(test)
    data = TrainingData(path, *held_out, images, on_bad_image, max_length, limit, select_on)
    if recorded is not None:
        stack.source = replace(stack.source, name=recorded.model)
        data = data.as_trained(recorded)
        seed = seed or int(recorded.experiment.get("seed", 0))
    splits = steps.read_shared_splits(data, stack, first, several, reporter, seed=seed, corpus=corpus)
    description = RunDescription(
        manifest=recorded or steps.describe_merging(stack, several, splits, open_one, seed),
        lines=steps.describe_work(stack, splits, several, draws),
        folder=trained_run if run is None or Path(run) == trained_run else None,
    )
    with start_run(description) as study:
        notes = steps.compare_variants(study.run, variants, splits, open_one, reporter, draws=draws, seed=seed)
        for note in notes:
            reporter.log(f"note: {note}")
    return Result(study.folder)
