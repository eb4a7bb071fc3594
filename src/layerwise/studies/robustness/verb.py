"""`layerwise robustness`: how a model copes with reordered or missing layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from layerwise.errors import OptionError, RunError
from layerwise.results.run import is_run
from layerwise.runner.arguments import (
    Count,
    Device,
    Dtype,
    Location,
    Metavar,
    ModelLike,
    PathLike,
    Range,
    Rare,
    Seed,
    TextLike,
    to_path,
)
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.result import Result
from layerwise.runner.training_options import BadImages, HeldOut, TrainingData
from layerwise.runner.verb import current_call, spell, verb

DEMO = "demo-vit"


@verb(
    "robustness",
    group="Measuring",
    examples=(DEMO, "runs/vit-base-patch16-224-1a2b3c4d", "google/vit-base-patch16-224 --images FOLDER"),
)
def robustness(
    model: Annotated[ModelLike, Metavar("RUN_OR_MODEL")],
    text: TextLike = None,
    *,
    images: Annotated[str | None, Metavar("LOCATION")] = None,
    draws: Count = 16,
    orders: Rare[Annotated[int, Range(least=1, most=100_000)]] = 100,
    nodes: Rare[Annotated[Sequence[int], Range(least=2, most=1_000), Metavar("N,N,...")]] = (2, 4),
    inside_images: Rare[Annotated[int, Range(least=1, most=100_000)]] = 100,
    inside_layers: Rare[Annotated[Sequence[int], Range(least=0), Metavar("N,N,...")]] = (),
    seeds: Rare[Annotated[int, Range(least=1, most=1_000)]] = 3,
    validation: Rare[PathLike] = None,
    test: Rare[PathLike] = None,
    on_bad_image: Rare[BadImages] = "refuse",
    max_length: Rare[Annotated[int | None, Range(least=2)]] = None,
    limit: Rare[Count | None] = None,
    select_on: Rare[HeldOut] = "held-out",
    device: Rare[Device] = "auto",
    dtype: Rare[Dtype] = "auto",
    tokenizer: Rare[Location] = None,
    layers: Rare[str | None] = None,
    revision: Rare[str | None] = None,
    trust_remote_code: Rare[bool] = False,
    run: PathLike = None,
    overwrite: bool = False,
    seed: Seed = 0,
    reporter: Reporter | None = None,
) -> Result:
    """Measure how a model copes with reordered or missing layers.

    The effect of each layer at each position is measured as well. Given a run of `layerwise train robust`, all its
    models are evaluated and compared. demo-vit first trains its models, which takes a few minutes.

    Args:
        model: Run of `layerwise train robust`, hub id, folder, or demo-vit.
        text: Text file, a folder of them, or hf:DATASET.
        images: Folder of class folders, hub dataset, or digits.
        draws: Number of random layer orders.
        orders: Number of fixed orders, each run on all examples.
        nodes: Numbers of nodes to place the layers on; each node fails in turn.
        inside_images: Number of images in the UMAP layout (paper: 1,000).
        inside_layers: Layers in the UMAP layout (default: all).
        seeds: Number of random seeds.
        validation: Text for selecting checkpoints.
        test: Text for the reported results.
        on_bad_image: Handling of unreadable images: refuse or skip.
        max_length: Maximum length of a text in tokens.
        limit: Maximum number of images per split.
        select_on: Examples for selecting checkpoints: held-out or reported.
        device: Device: auto, cpu, cuda, mps or xpu.
        dtype: Weight dtype. `auto` uses the checkpoint's dtype (float32 on CPU).
        tokenizer: Tokenizer, if the model does not include one.
        layers: Path of the layers, such as model.layers.
        revision: Branch, tag or commit of a hub model.
        trust_remote_code: Run code that comes with the model.
        run: Run directory (default: derived from options).
        overwrite: Discard the results of an earlier run.
        seed: Random seed.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The result with the surveys by model, order and number of layers, and their contrasts.

    Raises:
        RunError: If `model` is a run of another verb, or if `run` is passed although `model` is a run.
        DataError: If the data does not fit the model.

    Example:
        >>> layerwise.robustness("demo-vit", seeds=1).table()  # doctest: +SKIP
    """
    location = str(model) if isinstance(model, str | Path) else None
    is_trained_run = location is not None and is_run(location)
    is_demo = location == DEMO
    if is_trained_run and run is not None:
        raise RunError(f"{spell('run')} must not be given for a run. Omit it to add the results to {location}.")
    loading = {"tokenizer": tokenizer, "layers": layers, "revision": revision}
    given = [name for name, value in loading.items() if value is not None]
    given += ["trust_remote_code"] if trust_remote_code else []
    if is_trained_run and given:
        raise OptionError(f"{spell(given[0])} has no effect on a run, whose models are opened as they were trained.")
    if is_demo and dtype != "auto":
        raise OptionError(f"{spell('dtype')} has no effect on {DEMO}, which is trained and evaluated in float32.")
    if not is_demo and "seeds" in current_call().verb.given(current_call().options):
        raise OptionError(f"{spell('seeds')} requires {DEMO}, which trains models.")
    from layerwise.measure.activations.embedding import EmbeddingOptions
    from layerwise.measure.interventions.survey import EvaluationGrid
    from layerwise.runner.opening import open_given_text, open_stack, quiet_transformers
    from layerwise.studies.robustness import steps
    from layerwise.train.load_trained import Trained

    reporter = reporter or Silent()
    reporter.log(f"loading {location}" if location else "loading the model")
    quiet_transformers()
    path, corpus = open_given_text(text)
    held_out = to_path(validation), to_path(test)
    data = TrainingData(path, *held_out, images, on_bad_image, max_length, limit, select_on)
    grid = EvaluationGrid(orders=orders, draws=draws, seed=seed, nodes=tuple(nodes))
    inside = EmbeddingOptions(inside_images, tuple(inside_layers))
    if location is not None and is_trained_run:
        given_seed = seed if seed else None
        folder = steps.survey_run(
            Path(location).expanduser(),
            data,
            corpus,
            reporter,
            grid=grid,
            inside=inside,
            device=device,
            dtype=dtype,
            seed=given_seed,
        )
        return Result(folder)
    if is_demo:
        return Result(steps.train_demo(data, reporter, device=device, seeds=seeds, seed=seed, grid=grid, inside=inside))
    if location is None:
        trained = Trained(open_stack(model, reporter, tokenizer=tokenizer), None)
    else:
        options = {**loading, "trust_remote_code": trust_remote_code}
        trained = steps.open_surveyed(location, reporter, device=device, dtype=dtype, **options)
    folder = steps.survey_model(
        trained, location, data, corpus, reporter, grid=grid, inside=inside, dtype=dtype, seed=seed
    )
    return Result(folder)
