"""Compare merged models with their members (the original models) and with an ensemble of the members.

    members      the original models: their mean, and the model with the best validation result
    merged       models in which each layer is from a randomly drawn member (see `assignments`)
    node         members in which the layers of a failed node are skipped, or replaced by those of the next member
    ensemble     the mean of the logits of all members, which costs as much as running all of them

Layers of a merged model are at the depth at which they were trained, or at random depths. Results are on the test
split, in order and in random orders, which are drawn for every model and batch. The embedding, norm and head of a
merged model are those of the first member. Layers of two models fit together if both were trained from the same base
model, which the training record names (Freiberger et al. 2024, sections 1 and 4.4).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from layerwise.data.model_location import location_of
from layerwise.data.splits import Splits
from layerwise.data.text.corpus import Corpus
from layerwise.errors import ModelError
from layerwise.measure.contrasts.contrast import CONTRAST, replace_claims
from layerwise.measure.contrasts.shuffled import contrast_merging as decisive
from layerwise.measure.interventions.accuracy import (
    BATCH,
    Predictions,
    concatenate,
    evaluate,
    mean_logits,
    score_logits,
    split_labels,
)
from layerwise.measure.interventions.robustness import estimate_metrics, paired_difference
from layerwise.plan import Plan, Visit
from layerwise.plan.families import assignments
from layerwise.plan.samplers import node_layout
from layerwise.results import Manifest, Run, Score
from layerwise.results import vocabulary as vocab
from layerwise.results.vocabulary import MERGES, MERGING
from layerwise.runner.opening import open_stack
from layerwise.runner.reporter import Reporter, Silent, describe_model
from layerwise.runner.source_models import SourceModel, Variants
from layerwise.runner.training_options import TrainingData
from layerwise.runner.training_runs import (
    DIGITS,
    check_test_size,
    describe_splits,
    make_training_manifest,
    read_splits,
    refuse_other_splits,
)
from layerwise.stack import Stack, weight_hash
from layerwise.stack.inputs import accepted, evaluating, main_tensor
from layerwise.train.load_trained import open_trained

KINDS = {vocab.SEQUENTIAL: "own-depth", vocab.RANDOM_ORDER: "random"}
"""The types of merged models: with each layer at the depth at which it was trained, or at a random depth."""

MIN_BATCHES = 16
"""Minimum number of batches if a random order is drawn for every batch."""

Progress = Callable[[int, int], None]


class MemberOutcomes(NamedTuple):
    members: Mapping[str, Predictions]
    ensemble: Predictions


def compare_models(
    variant: str,
    stacks: Mapping[str, Stack],
    splits: Splits,
    *,
    draws: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Score]:
    """Return rows of the measures `merging` and `merges` for models of one training variant, and their contrasts.

    If `draws` is 0, models are evaluated but not merged.
    """
    if len(stacks) < 2:
        raise ModelError(f"Merging requires at least two models of a variant, got {len(stacks)} of {variant}.")
    rows: list[Score] = []
    members: dict[str, list[Predictions]] = {}
    done, parts = 0, 2 * len(ORDERS) + (2 * draws + len(ORDERS) if draws else 0)

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, parts)

    for order in ORDERS:
        validated = evaluate_members(stacks, splits.validation, splits.collate, order, seed).members
        ranks = {name: -each.accuracy if splits.classes else each.mean_nll for name, each in validated.items()}
        best = min(ranks, key=ranks.__getitem__)
        step()
        tested = evaluate_members(stacks, splits.test, splits.collate, order, seed)
        batch = 1 if order == vocab.SEQUENTIAL else _batch_size(splits.test)
        rows += _best_member_rows(variant, order, tested, best, batch)
        members[order] = list(tested.members.values())
        step()
    if draws:
        merged = Stack.with_sources(stacks)
        rows += replace_nodes(variant, merged, tuple(stacks), splits, seed, step)
        for order, kind in KINDS.items():
            plans = assignments(tuple(stacks), merged.depth, draws, seed, own_depth=order == vocab.SEQUENTIAL)
            outcomes: dict[Plan, Predictions] = {}
            for plan in plans:
                if plan not in outcomes:
                    outcomes[plan] = evaluate(merged, plan, splits.test, splits.collate)
                step()
            models = [outcomes[plan] for plan in plans]
            rows += member_rows(variant, vocab.MERGED, order, models)
            for plan, outcome in outcomes.items():
                columns: dict[str, Any] = {"variant": variant, "plan": str(plan), "order": order}
                rows.append(Score(vocab.MERGES, "accuracy", outcome.accuracy, **columns, documents=len(outcome.hits)))
            if splits.classes:  # the published result is classification accuracy
                rows += decisive(variant, kind, members[order], models, splits.chance, batch=_batch_size(splits.test))
    return rows


def evaluate_members(
    stacks: Mapping[str, Stack],
    examples: Any,
    collate: Callable[[Sequence[Any]], dict[str, Tensor]],
    order: str,
    seed: int,
) -> MemberOutcomes:
    """Evaluate every model in separately drawn orders, and the ensemble of all models."""
    members: dict[str, list[Predictions]] = {name: [] for name in stacks}
    together = []
    size = BATCH if order == ORDERS[0] else _batch_size(examples)

    def run_members(number: int, batch: Mapping[str, Tensor]) -> Iterator[Tensor]:
        for name, stack in stacks.items():
            inputs, labels = split_labels(batch, stack.device)
            with stack.under(_draw_order(stack.depth, order, f"{seed}/member {name}/{number}"), single_pass=True):
                logits = main_tensor(stack.model(**accepted(stack.model, inputs)))
            members[name].append(score_logits(logits, labels))
            yield logits

    with ExitStack() as modes, torch.inference_mode():
        for stack in stacks.values():
            modes.enter_context(evaluating(stack.model))
        for number, batch in enumerate(DataLoader(examples, batch_size=size, collate_fn=collate)):
            logits = mean_logits(run_members(number, batch))
            together.append(score_logits(logits, batch["labels"].to(logits.device)))
    return MemberOutcomes({name: concatenate(parts) for name, parts in members.items()}, concatenate(together))


def _batch_size(examples: Any) -> int:
    return max(1, min(BATCH, len(examples) // MIN_BATCHES))


def _draw_order(depth: int, order: str, seed: str) -> Plan:
    original = list(range(depth))
    layers, chance = list(original), random.Random(seed)
    while order == vocab.RANDOM_ORDER and layers == original and depth > 1:
        chance.shuffle(layers)
    return Plan.of(layers)


def _best_member_rows(variant: str, order: str, outcomes: MemberOutcomes, chosen: str, batch: int) -> Iterator[Score]:
    members, ensemble = outcomes
    yield from member_rows(variant, vocab.MEMBERS, order, list(members.values()), batch)
    best = members[chosen]
    columns: dict[str, Any] = {"variant": variant, "order": order, "documents": len(best.hits)}
    for part, outcome in ((vocab.BEST_MEMBER, best), (vocab.ENSEMBLE, ensemble)):
        for metric, bounded in estimate_metrics([outcome], batch):
            yield Score(vocab.MERGING, metric, *bounded, **columns, strategy=part)
    for metric, values in (("accuracy", "hits"), ("nll", "nll")):
        gap = paired_difference([(ensemble, best)], values, batch=batch)
        yield Score(
            vocab.MERGING, f"{metric}_above", *gap, **columns, strategy=vocab.ENSEMBLE, against=vocab.BEST_MEMBER
        )


MAX_NODES = 4
"""Number of nodes that share the layers. If there are fewer layers, each has a node."""

ORDERS = (vocab.SEQUENTIAL, vocab.RANDOM_ORDER)


def replace_nodes(
    variant: str, merged: Stack, models: Sequence[str], splits: Splits, seed: int, step: Callable[[], None]
) -> Iterator[Score]:
    """Let every node of every model of a variant fail in turn, and yield the rows.

    `merged` is a stack with the layers of all `models`. Results are averaged over the nodes of a model, and intervals
    are over models. `step` is called after every layer order, to report progress.
    """
    for order in ORDERS:
        outcomes: dict[str, list[Predictions]] = {vocab.NODE_FAILED: [], vocab.NODE_REPLACED: []}
        for lost, replaced in list_replacements(models, merged.depth, order, seed):
            for name, plan in ((vocab.NODE_FAILED, lost), (vocab.NODE_REPLACED, replaced)):
                outcomes[name].append(evaluate(merged, plan, splits.test, splits.collate))
        nodes = len(outcomes[vocab.NODE_FAILED]) // len(models)
        by_model = {
            name: [_average(each[first : first + nodes]) for first in range(0, len(each), nodes)]
            for name, each in outcomes.items()
        }
        for name, each in by_model.items():
            yield from member_rows(variant, name, order, each)
        pairs = list(zip(by_model[vocab.NODE_REPLACED], by_model[vocab.NODE_FAILED], strict=True))
        columns: dict[str, Any] = {
            "variant": variant,
            "strategy": vocab.NODE_REPLACED,
            "order": order,
            "against": vocab.NODE_FAILED,
        }
        for metric, values in (("accuracy", "hits"), ("nll", "nll")):
            yield Score(vocab.MERGING, f"{metric}_above", *paired_difference(pairs, values), **columns)
        step()


def _average(outcomes: Sequence[Predictions]) -> Predictions:
    top5 = [each.hits_top5 for each in outcomes if each.hits_top5 is not None]
    hits, nll, scored = (
        np.mean([getattr(each, name) for each in outcomes], axis=0) for name in ("hits", "nll", "scored")
    )
    return Predictions(hits, np.mean(top5, axis=0) if top5 else None, nll, scored)


def list_replacements(models: Sequence[str], depth: int, order: str, seed: int) -> Iterator[tuple[Plan, Plan]]:
    """For the layers of each node, yield a plan that skips them and a plan that takes them from the next model.

    >>> for lost, replaced in list_replacements(["a", "b"], depth=2, order="sequential", seed=0):
    ...     print(f"{lost} | {replaced}")
    a:1 | b:0 a:1
    a:0 | a:0 b:1
    b:1 | a:0 b:1
    b:0 | b:0 a:1
    """
    for number, model in enumerate(models):
        other = models[(number + 1) % len(models)]
        for index, node in enumerate(node_layout(depth, min(MAX_NODES, depth), "blocks")):
            layers = list(range(depth))
            if order == vocab.RANDOM_ORDER:
                random.Random(f"{seed}/replaced/{model}/{index}").shuffle(layers)
            lost = [Visit(layer, source=model) for layer in layers if layer not in node]
            replaced = [Visit(layer, source=other if layer in node else model) for layer in layers]
            yield Plan(tuple(lost)), Plan(tuple(replaced))


def member_rows(
    variant: str, part: str, order: str, outcomes: Sequence[Predictions], batch: int = 1
) -> Iterator[Score]:
    columns: dict[str, Any] = {"variant": variant, "strategy": part, "order": order}
    each = [dict(estimate_metrics([outcome], batch)) for outcome in outcomes]
    for metric, bounded in estimate_metrics(outcomes, batch):
        yield Score(vocab.MERGING, metric, *bounded, **columns, documents=len(outcomes[0].hits))
        if len(outcomes) > 1:
            values = [own[metric][0] for own in each]
            yield Score(vocab.MERGING, f"{metric}_spread", float(np.std(values, ddof=1)), **columns)


SPLIT_FLAGS = ("--images or --text (--validation, --test)", "--limit", "--select-on", "--seed")


def compare_variants(
    run: Run,
    variants: Variants,
    splits: Splits,
    open_source: Callable[[SourceModel], Stack],
    reporter: Reporter,
    *,
    draws: int,
    seed: int,
) -> list[str]:
    """Compare merged models with their members for every variant that has at least two models, and store the rows.

    Return notes on what was not measured.
    """
    rows: list[Score] = []
    notes = [
        f"{variant} has one model, so nothing was merged" for variant, models in variants.items() if len(models) < 2
    ]
    for variant, models in variants.items():
        if len(models) < 2:
            continue
        added = next((source.added for source in models.values() if source.added), None)
        if added:
            notes.append(
                f"{variant}: the layers need {added} of their model, so the models were evaluated but not merged"
            )

        def progress(done: int, parts: int, variant: str = variant) -> None:
            reporter.progress(f"merging {variant}", done / parts)

        stacks = {name: open_source(source) for name, source in models.items()}
        rows += compare_models(variant, stacks, splits, draws=0 if added else draws, seed=seed, progress=progress)
    if splits.selects_on_reported and rows:
        notes.append("the best member was selected on the reported examples (--select-on reported)")
    run.store.replace_notes(MERGING, notes)
    contrasts = [row for row in rows if row.measure == CONTRAST]
    others = [row for row in rows if row.measure != CONTRAST]
    contrasts = replace_claims(run.store.scores(CONTRAST), contrasts, (MERGING,))
    run.store.replace_scores((CONTRAST, MERGES, MERGING), [*contrasts, *others])
    return notes


def open_source(source: SourceModel, *, device: str, dtype: str) -> Stack:
    if source.added:
        return open_trained(Path(source.location), device=device, dtype=dtype).stack
    return open_stack(source.location, Silent(), device=device, dtype=dtype)


def read_shared_splits(
    data: TrainingData,
    stack: Stack,
    first: SourceModel,
    several: Variants,
    reporter: Reporter,
    *,
    seed: int,
    corpus: Corpus | None,
) -> Splits:
    """Read the splits on which all models were trained, or raise an error if they were trained on other splits."""
    recorded = first.record.data_name if first.record is not None else None
    if data.images is None and data.text is None and corpus is None and recorded == DIGITS:
        data = replace(data, images=DIGITS)
    splits = read_splits(data, stack, location_of(first.location), reporter, seed=seed, corpus=corpus)
    for models in several.values():
        for name, source in models.items():
            if source.record is not None and source.record.data != splits.digest:
                what = f"{name} ({source.location})"
                raise refuse_other_splits(what, source.record.data_name, splits, SPLIT_FLAGS)
    check_test_size(splits)
    return splits


def describe_merging(
    stack: Stack, several: Variants, splits: Splits, open_one: Callable[[SourceModel], Stack], seed: int
) -> Manifest:
    weights = ""
    for models in several.values():
        stacks = {name: open_one(source) for name, source in models.items()}
        Stack.with_sources(stacks)  # raises if the layers do not fit together
        weights += "".join(weight_hash(stack.model) for stack in stacks.values())
    combined = hashlib.sha256(weights.encode()).hexdigest()
    return make_training_manifest(stack, combined, splits, seed=seed)


def describe_work(stack: Stack, splits: Splits, several: Variants, draws: int) -> list[str]:
    models = sum(len(models) for models in several.values())
    return [
        describe_model(stack),
        describe_splits(splits),
        f"{models} models of {len(several)} variant{'s' * (len(several) != 1)}: {2 * draws * len(several):,} "
        f"merged models, each evaluated on {len(splits.test):,} examples, and every model in two orders",
    ]
