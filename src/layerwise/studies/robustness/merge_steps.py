"""Compare merged models with their members, arm by arm, read from folders and runs.

Layers of two models fit together if both were refined from one base (Freiberger et al. 2024, section 4.4). The training
record names the base; a model without a record is accepted with a note.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from layerwise.data.model_location import location_of
from layerwise.data.splits import Splits
from layerwise.data.text.corpus import Corpus
from layerwise.measure.contrasts.contrast import CONTRAST, renewed
from layerwise.results import Manifest, Run, Score
from layerwise.results.vocabulary import MERGES, MERGING
from layerwise.runner.opening import open_stack
from layerwise.runner.reporter import Reporter, Silent, describe_model
from layerwise.runner.source_models import Arms, SourceModel
from layerwise.runner.training_options import TrainingData
from layerwise.runner.training_runs import (
    DIGITS,
    check_enough,
    describe_splits,
    read_splits,
    refuse_other_splits,
    training_manifest,
)
from layerwise.stack import Stack, weight_hash
from layerwise.studies.robustness.merge_comparison import compare
from layerwise.train.load_trained import open_trained

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


def open_source(source: SourceModel, *, device: str, dtype: str) -> Stack:
    if source.added:
        return open_trained(Path(source.location), device=device, dtype=dtype).stack
    return open_stack(source.location, Silent(), device=device, dtype=dtype)


def read_shared_splits(
    data: TrainingData,
    stack: Stack,
    first: SourceModel,
    several: Arms,
    reporter: Reporter,
    *,
    seed: int,
    corpus: Corpus | None,
) -> Splits:
    """Read the splits that every model was trained on.

    Raises:
        RunError: If a model was trained on other splits.
    """
    recorded = first.record.data_name if first.record is not None else None
    if data.images is None and data.text is None and corpus is None and recorded == DIGITS:
        data = replace(data, images=DIGITS)
    splits = read_splits(data, stack, location_of(first.location), reporter, seed=seed, corpus=corpus)
    for models in several.values():
        for name, source in models.items():
            if source.record is not None and source.record.data != splits.digest:
                what = f"{name} ({source.location})"
                raise refuse_other_splits(what, source.record.data_name, splits, SPLIT_FLAGS)
    check_enough(splits)
    return splits


def describe_merging(
    stack: Stack, several: Arms, splits: Splits, open_one: Callable[[SourceModel], Stack], seed: int
) -> Manifest:
    """Return the manifest of merging models that are not from one run.

    Raises:
        ModelError: If the layers of two models do not fit together.
    """
    weights = ""
    for models in several.values():
        stacks = {name: open_one(source) for name, source in models.items()}
        Stack.with_sources(stacks)  # refuses models whose layers do not fit together
        weights += "".join(weight_hash(stack.model) for stack in stacks.values())
    combined = hashlib.sha256(weights.encode()).hexdigest()
    return training_manifest(stack, combined, splits, seed=seed)


def describe_work(stack: Stack, splits: Splits, several: Arms, draws: int) -> list[str]:
    models = sum(len(models) for models in several.values())
    return [
        describe_model(stack),
        describe_splits(splits),
        f"{models} models of {len(several)} arm{'s' * (len(several) != 1)}: {2 * draws * len(several):,} "
        f"merged models, each evaluated on {len(splits.test):,} examples, and every model in two orders",
    ]
