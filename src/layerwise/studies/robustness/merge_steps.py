"""Compare merged models with their members, arm by arm, read from folders and runs.

Layers of two models fit together if both were refined from one base (Freiberger et al. 2024, section 4.4). The training
record names the base; a model without a record is accepted with a note.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from layerwise.data.model_location import location_of
from layerwise.data.splits import Splits
from layerwise.errors import ModelError
from layerwise.measure.contrasts.contrast import CONTRAST, renewed
from layerwise.results import Manifest, Rows, Run, Score
from layerwise.results.run import MANIFEST
from layerwise.results.vocabulary import BEST_MEMBER, ENSEMBLE, MEMBERS, MERGED, MERGES, MERGING
from layerwise.runner.call import MeasureUnit
from layerwise.runner.experiment import Inputs
from layerwise.runner.opening import open_model, quiet_transformers
from layerwise.runner.options.common import LoadingOptions
from layerwise.runner.reporter import Reporter, describe_model
from layerwise.runner.source_models import (
    Arms,
    SourceModel,
    arms_of,
)
from layerwise.runner.steps import Completed, Outline, Steps
from layerwise.runner.training_runs import (
    DIGITS,
    as_trained,
    check_enough,
    describe_splits,
    manifest_of_trainings,
    read_splits,
    refuse_other_splits,
    training_manifest,
)
from layerwise.stack import Stack, weight_hash
from layerwise.studies.robustness.merge_comparison import ORDERS, compare
from layerwise.studies.robustness.options import Merging
from layerwise.train.load_trained import open_trained

PARTS = (MEMBERS, BEST_MEMBER, MERGED, ENSEMBLE)
COLUMNS = ("accuracy", "order", *PARTS)
SPLIT_FLAGS = ("--images or --text (--validation, --test)", "--limit", "--select-on", "--seed")


def compare_arms(
    run: Run,
    arms: Arms,
    splits: Splits,
    open_source: Callable[[SourceModel], Stack],
    reporter: Reporter,
    *,
    draws: int,
    seed: int,
) -> list[str]:
    """Evaluate members, merged models and ensemble of every arm with two models; return notes on omissions."""
    rows: list[Score] = []
    notes = [f"{arm} has one model, so nothing was merged" for arm, models in arms.items() if len(models) < 2]
    for arm, models in arms.items():
        if len(models) < 2:
            continue
        added = next((source.added for source in models.values() if source.added), None)
        if added:
            notes.append(
                f"{arm}: each layer was trained with {added} of its own model, so its models were evaluated together "
                "but not merged"
            )

        def progress(done: int, parts: int, arm: str = arm) -> None:
            reporter.progress(f"merging {arm}", done / parts)

        stacks = {name: open_source(source) for name, source in models.items()}
        rows += compare(arm, stacks, splits, draws=0 if added else draws, seed=seed, progress=progress)
    if splits.selects_on_reported and rows:
        notes.append("the best member was chosen on the examples that are reported (--select-on reported)")
    # The rows of merging are written last: where they stand, all of it is written.
    run.store.replace_notes(MERGING, notes)
    contrasts = [row for row in rows if row.measure == CONTRAST]
    run.store.replace_scores(CONTRAST, renewed(run.store.scores(CONTRAST), contrasts, (MERGING,)))
    for measure in (MERGES, MERGING):
        run.store.replace_scores(measure, [row for row in rows if row.measure == measure])
    return notes


def merging(config: Merging, reporter: Reporter, inputs: Inputs) -> Steps:
    """Evaluate the members, merged models and the ensemble of every arm on shared held-out examples.

    Rows go into the run of the trainings if all models are from one. Raises `ModelError` if no arm has two models,
    `RunError` for splits that a model may have learned from.
    """
    quiet_transformers()
    arms = arms_of(config.models, config.arm, reporter)
    several = {arm: models for arm, models in arms.items() if len(models) > 1}
    if not several:
        raise ModelError(f"merging takes two models or more that were trained alike; found 1 of {', 1 of '.join(arms)}")
    path = Path(config.models[0]).expanduser()
    of_run = path if len(config.models) == 1 and (path / MANIFEST).is_file() else None
    recorded = None if of_run is None else manifest_of_trainings(of_run)
    first = next(iter(next(iter(several.values())).values()))
    stack = _opened(config, first)
    if recorded is not None:
        stack.source = replace(stack.source, name=recorded.model)
    read = config if recorded is None else as_trained(config, recorded)
    splits = _splits(read, stack, first, several, reporter, inputs)

    def says() -> Iterator[str]:
        yield describe_model(stack)
        yield describe_splits(splits)
        models = sum(len(models) for models in several.values())
        yield (
            f"{models} models of {len(several)} arm{'s' * (len(several) != 1)}: {2 * config.draws * len(several):,} "
            f"merged models, each evaluated on {len(splits.test):,} examples, and every model in two orders"
        )

    yield Outline(
        recorded or _manifest(config, stack, several, splits),
        says,
        folder=of_run if config.run in (None, of_run) else None,
        results=lambda run: (_table(Rows(run.store.scores(MERGING)), several),),
    )
    compared = partial(
        compare_arms,
        arms=arms,
        splits=splits,
        open_source=partial(_opened, config),
        reporter=reporter,
        draws=config.draws,
        seed=config.seed,
    )
    for note in (yield from MeasureUnit(lambda session: compared(session.run))):
        reporter.log(f"note: {note}")
    return Completed()


def _opened(config: Merging, source: SourceModel) -> Stack:
    if source.added:
        return open_trained(Path(source.location), device=config.device, dtype=config.dtype).stack
    return open_model(LoadingOptions(device=config.device), model=source.location, dtype=config.dtype)


def _splits(
    config: Merging, stack: Stack, first: SourceModel, several: Arms, reporter: Reporter, inputs: Inputs
) -> Splits:
    known = first.record.data_name if first.record is not None else None
    if config.images is None and config.text is None and inputs.corpus is None and known == DIGITS:
        config = replace(config, images=DIGITS)
    splits = read_splits(config, stack, location_of(first.location), reporter, seed=config.seed, corpus=inputs.corpus)
    for models in several.values():
        for name, source in models.items():
            if source.record is not None and source.record.data != splits.digest:
                what = f"{name} ({source.location})"
                raise refuse_other_splits(what, source.record.data_name, splits, SPLIT_FLAGS)
    check_enough(splits)
    return splits


def _manifest(config: Merging, stack: Stack, several: Arms, splits: Splits) -> Manifest:
    weights = ""
    for models in several.values():
        stacks = {name: _opened(config, source) for name, source in models.items()}
        Stack.with_sources(stacks)  # refuses models whose layers do not fit together
        weights += "".join(weight_hash(stack.model) for stack in stacks.values())
    combined = hashlib.sha256(weights.encode()).hexdigest()
    return training_manifest(stack, combined, splits, seed=config.seed)


def _table(scores: Rows, arms: Mapping[str, Mapping[str, SourceModel]]) -> str:
    def cell(arm: str, order: str, part: str) -> str:
        of = {"arm": arm, "condition": order, "part": part}
        value, spread = (scores.value(**of, metric=metric) for metric in ("accuracy", "accuracy_spread"))
        if value is None:
            return "–"
        return f"{value:.1%}" if spread is None else f"{value:.1%} ± {spread:.1%}"

    rows: list[tuple[str, ...]] = [COLUMNS]
    for arm in arms:
        for order in ORDERS:
            rows.append((arm, order, *(cell(arm, order, part) for part in PARTS)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
