"""`layerwise evaluate`: evaluate language models on minimal pairs, and on tasks after fine-tuning."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from layerwise.bounded import kind_of, named
from layerwise.errors import DataError, OptionError, RunError, near_matches
from layerwise.plan import EdgeCut
from layerwise.plan.families import TWICE
from layerwise.results.run import is_run
from layerwise.runner.arguments import (
    Device,
    Dtype,
    Location,
    Metavar,
    ModelLike,
    Names,
    PathLike,
    Plans,
    Range,
    Rare,
    Seed,
    Trait,
    to_path,
)
from layerwise.runner.plan_choice import PlanChoice
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.result import Result
from layerwise.runner.training_options import drop_none
from layerwise.runner.verb import current_call, spell, verb

# The same names as in `layerwise.data.suites`, which imports too much for --help; a test compares them.
SUITES = ("pairs", "blimp", "supplement", "ewok", "glue", "msgs", "msgs-ours", "attribution")
FINE_TUNED = ("glue", "msgs", "msgs-ours", "attribution")
"""Suites that models are fine-tuned on. The others are scored without training."""

GENERATED = ("pairs", "msgs-ours", "attribution")
"""Suites that layerwise generates. The others are read from files."""

LAYER_WEIGHTS = ("held", "added")
TUNING = ("tasks", "seeds", "families", "plans", "window", "train", "learning_rate", "batch_size", "epochs", "patience")
FOR_TUNING = (*TUNING, "max_length", "published", "curve_points", "layer_weights")
FOR_PAIRS = ("temperature", "too_long", "minutes", "without_edges")
LOADING = ("tokenizer", "layers", "revision", "trust_remote_code")

Edges = Annotated[Sequence[str], Metavar("EDGES")]
Windows = Annotated[Sequence[str], Trait.REPEATED, Metavar("A-B")]


@verb(
    "evaluate",
    group="Measuring",
    examples=(
        "demo",
        "runs/elc --suite pairs,blimp,glue --data FOLDER",
        "./bert --suite glue --data FOLDER --families painters",
        "bert-base-cased --suite my_pairs.jsonl",
    ),
)
def evaluate(
    model: Annotated[ModelLike, Metavar("RUN_OR_MODEL")],
    *,
    suite: Annotated[Sequence[str], Trait.EMPTY, Metavar("NAMES")] = ("pairs",),
    data: PathLike = None,
    tasks: Names = (),
    seeds: Annotated[int, Range(least=1, most=1_000)] = 3,
    limit: Rare[Annotated[int | None, Range(least=1)]] = None,
    minutes: Annotated[float | None, Range(least=1, most=10_000)] = None,
    families: Annotated[Sequence[str], Trait.EMPTY, Metavar("NAMES")] = (),
    plans: Plans = (),
    window: Rare[Windows] = (),
    without_edges: Rare[Edges] = (),
    layer_weights: Rare[Names] = (),
    train: Rare[Literal["all", "head"]] = "all",
    learning_rate: Annotated[float | None, Range(above=0)] = None,
    batch_size: Rare[Annotated[int | None, Range(least=1)]] = None,
    epochs: Annotated[int | None, Range(least=1)] = None,
    patience: Rare[Annotated[int | None, Range(least=1)]] = None,
    max_length: Rare[Annotated[int | None, Range(least=2)]] = None,
    curve_points: Rare[Annotated[int, Range(least=0, most=1_000)]] = 0,
    published: Rare[Literal["none", "elc-bert"]] = "none",
    temperature: Rare[Annotated[float, Range(above=0)]] = 1.0,
    too_long: Rare[Literal["refuse", "skip"]] = "refuse",
    password: Rare[str | None] = None,
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
    """Evaluate language models on minimal pairs, and on tasks after fine-tuning.

    Models can be masked or causal. Given a run, every trained model in it is evaluated, and the results are added to
    that run. Guessing gets half of the pairs right. Plans apply to fine-tuning and testing. By default,
    fine-tuning runs for at most 10 epochs at a learning rate of 5e-5 with a batch size of 32.

    Args:
        model: Run directory with trained models, hub id, folder, or demo.
        suite: Suites (pairs, blimp, supplement, ewok, glue, msgs, msgs-ours, attribution) or files of pairs.
        data: Directory of the published suites.
        tasks: Tasks of the fine-tuned suites (default: all).
        seeds: Number of random seeds.
        limit: Maximum number of pairs per paradigm, or of examples.
        minutes: Time budget in minutes.
        families: Plan families.
        plans: Plan to run; repeat for more.
        window: Also apply painters to a range, such as 4-8.
        without_edges: Also score pairs without some layer weights: 30% (the weakest), 3<-0, 3<-0+4<-1, *<-1.
        layer_weights: Also fine-tune with layer weights frozen (held) or added.
        train: Weights to train: all, or only the head.
        learning_rate: Peak learning rate.
        batch_size: Batch size.
        epochs: Number of epochs.
        patience: Stop fine-tuning after this many epochs without improvement.
        max_length: Maximum length of a text in tokens.
        curve_points: Number of points of each learning curve.
        published: Use the settings of a published model.
        temperature: Softmax temperature for scoring sentences.
        too_long: Handling of sentences that are too long: refuse or skip.
        password: Password of the EWoK archive.
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
        The result with the scores by model, task and plan.

    Raises:
        DataError: If a suite, a task or a file is unknown or cannot be read.
        OptionError: If an option is used by none of the suites.
        PlanError: If a plan or an edge does not exist.
        RunError: If the run has no finished model.

    Example:
        >>> layerwise.evaluate("demo").table()  # doctest: +SKIP
    """
    began, is_trained = time.monotonic(), isinstance(model, str | Path) and is_run(Path(model).expanduser())
    given = current_call().verb.given(current_call().options)
    _check_suites(suite, data)
    _check_used(suite, given, is_trained)
    _check_layer_weights(layer_weights, is_trained)
    if run is not None and is_trained:
        raise RunError(
            f"{spell('run')} must not be given, because the results of a run are added to {model}. Remove it."
        )
    cuts = tuple(map(EdgeCut.parse, without_edges))
    choice = PlanChoice.check(families, plans, window, None, str(TWICE))
    from layerwise.runner.minimal_pairs import ScoringOptions, evaluate_models
    from layerwise.runner.opening import describe_numerics
    from layerwise.runner.study import RunDescription, start_run
    from layerwise.runner.training_runs import store_comparisons
    from layerwise.stack.load import resolve_device
    from layerwise.studies.evaluate import edges, steps, subjects
    from layerwise.studies.evaluate.minutes import limit_pairs
    from layerwise.train.fine_tuning import FineTuningConfig

    reporter = reporter or Silent()
    pairs = subjects.read_pair_sets(suite, to_path(data), limit, password)
    tuned = subjects.read_fine_tuned_tasks(suite, to_path(data), tasks, seed)
    changes = drop_none(
        learning_rates=None if learning_rate is None else (learning_rate,),
        batch_size=batch_size,
        epochs=epochs,
        patience=patience,
        length=max_length,
        train=None if train == "all" else train,
        evals=curve_points or None,
        published=None if published == "none" else published,
    )
    settings = FineTuningConfig(training_limit=limit, test_limit=limit, **changes)
    selection = subjects.SuiteChoice(tuple(suite), pairs, tuned)
    loading: dict[str, Any] = {"device": device, "dtype": dtype}
    if is_trained:
        evaluated = subjects.find_run(Path(str(model)).expanduser(), loading)
    else:
        named_options = {"tokenizer": tokenizer, "layers": layers, "revision": revision}
        loading |= {**named_options, "trust_remote_code": trust_remote_code}
        evaluated = subjects.open_single(model, selection, reporter, loading, choice, seed=seed, settings=changes)
    weighted = edges.find_weighted(evaluated, pairs) if cuts else ()
    models, skipped = steps.plan_models(evaluated, choice)
    options = ScoringOptions(temperature, too_long, describe_numerics(resolve_device(device), dtype))
    described = RunDescription(
        manifest=evaluated.manifest,
        lines=[
            *steps.describe_scoring(evaluated, selection, cuts, weighted),
            *steps.describe_tuning(
                models, skipped, selection, seeds=seeds, layer_weights=layer_weights, minutes=minutes
            ),
        ],
        recipe={**changes, **drop_none(minutes=minutes)} or None,
        folder=evaluated.folder,
        discard=partial(steps.discard_answers, tuned),
        results=lambda stored: steps.list_results(stored, selection, cuts),
        stays_complete=False,
    )
    with start_run(described) as study:
        progress = study.reporter.progress
        if overwrite:
            steps.discard_rows(study.run, selection, has_cuts=bool(cuts))
        if minutes is not None:
            selection = limit_pairs(study, evaluated, selection, minutes, began, options, overwrite=overwrite)
        evaluate_models(evaluated.list_models(), selection.pairs, options, study.run, progress=progress)
        if cuts:
            edges.evaluate_without_edges(
                evaluated.list_models(weighted), pairs, cuts, options, study.run, seed=seed, progress=progress
            )
        steps.fine_tune_models(
            study, models, skipped, selection, settings, seeds=seeds, device=device, layer_weights=layer_weights
        )
        if is_trained:
            store_comparisons(study.run)
    return Result(study.folder)


def _check_suites(suite: Sequence[str], data: str | Path | None) -> None:
    if not suite:
        raise DataError(f"{spell('suite')} must not be empty. Pass some of {', '.join(SUITES)}, or a file of pairs.")
    for name in suite:
        if name not in SUITES and kind_of(name) == "nothing":
            raise DataError(f"unknown suite or file {named(name)!r}; {near_matches(name, SUITES)}")
        if name in SUITES and name not in GENERATED and data is None:
            raise DataError(f"layerwise does not include {name}. Pass the directory of its files with {spell('data')}.")


def _check_layer_weights(layer_weights: Sequence[str], is_trained: bool) -> None:
    if unknown := [name for name in layer_weights if name not in LAYER_WEIGHTS]:
        raise OptionError(f"{spell('layer_weights')} must be held or added, got {named(unknown[0])!r}.")
    if layer_weights and not is_trained:
        raise OptionError(f"{spell('layer_weights')} requires a run of `layerwise train elc`. Pass one as the model.")


def _check_minutes(suite: Sequence[str], given: dict[str, Any]) -> None:
    name = spell("minutes")
    if "limit" in given:
        raise OptionError(f"{name} and {spell('limit')} cannot be combined. Pass one of them.")
    if tuned := [each for each in suite if each in FINE_TUNED]:
        raise OptionError(f"{name} applies only to minimal pairs. Evaluate {', '.join(tuned)} in a second run.")
    if "without_edges" in given:
        raise OptionError(f"{spell('without_edges')} and {name} cannot be combined. Pass {spell('limit')} instead.")


def _check_used(suite: Sequence[str], given: dict[str, Any], is_trained: bool) -> None:
    has_files = any(name not in SUITES for name in suite)
    is_tuned = any(name in FINE_TUNED for name in suite)
    has_pairs = has_files or any(name in SUITES and name not in FINE_TUNED for name in suite)
    unused = {
        "a published suite": ("data",) if all(name in GENERATED or name not in SUITES for name in suite) else (),
        "ewok or a file of pairs": () if "ewok" in suite or has_files else ("password",),
        "a suite of pairs": () if has_pairs else FOR_PAIRS,
        f"one of {', '.join(FINE_TUNED)}": () if is_tuned else FOR_TUNING,
    }
    for needed, names in unused.items():
        for name in names:
            if name in given:
                raise OptionError(f"{spell(name)} requires {needed} in {spell('suite')}. Add it, or remove the option.")
    if is_trained and (idle := [name for name in LOADING if name in given]):
        raise OptionError(
            f"{spell(idle[0])} has no effect on a training run: its models are loaded as they were trained. Remove it."
        )
    if "minutes" in given:
        _check_minutes(suite, given)
