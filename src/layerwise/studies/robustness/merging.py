"""Compare merged models with the models that they are made of, and with an ensemble of these.

    members      the models themselves: their mean, and the one that was best on the validation split
    merged       one layer each from drawn models (see `assignments`): at its own depth in order, and anywhere at all
    node         the layers of a lost node skipped, or taken from the next model (Freiberger et al. 2024, section 1)
    ensemble     the mean of the logits of all members: what K times the cost would buy

Everything is reported on the test split, in order and under orders drawn for every model and batch. The best member is
chosen on the validation split. Embedding, norm and head of a merged model are the first member's.

Layers of two models fit together if both were refined from one base (Freiberger et al. 2024, section 4.4). The training
record names the base; a model without a record is accepted with a note.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
"""The two kinds of merged models: with layers at their own depth, which stay in order, and with layers anywhere."""

PIECES = 16
"""The least number of batches that examples are cut into where every batch draws an order of its own."""

Progress = Callable[[int, int], None]
"""Receives how many parts of the comparison are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class MemberOutcomes:
    members: Mapping[str, Predictions]
    ensemble: Predictions


def compare(
    arm: str,
    stacks: Mapping[str, Stack],
    splits: Splits,
    *,
    draws: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Score]:
    """Return rows of measures `merging` and `merges` for models trained in one way, and those of a claim.

    `draws = 0` makes no merged models. Raises `ModelError` for fewer than two or different models, `PlanError` for
    models of one layer.
    """
    if len(stacks) < 2:
        raise ModelError(f"merging takes two models or more; {arm} has {len(stacks)}")
    rows: list[Score] = []
    members: dict[str, list[Predictions]] = {}
    done, parts = 0, 2 * len(ORDERS) + (2 * draws + len(ORDERS) if draws else 0)

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, parts)

    for order in ORDERS:
        selecting = evaluate_members(stacks, splits.validation, splits.collate, order, seed).members
        chosen = min(selecting, key=lambda name: _rank(selecting[name], text=not splits.classes))
        step()
        tested = evaluate_members(stacks, splits.test, splits.collate, order, seed)
        batch = 1 if order == vocab.SEQUENTIAL else _batch(splits.test)
        rows += _member_rows(arm, order, tested, chosen, batch)
        members[order] = list(tested.members.values())
        step()
    if draws:
        merged = Stack.with_sources(stacks)
        rows += node_replacement(arm, merged, tuple(stacks), splits, seed, step)
        for order, kind in KINDS.items():
            plans = assignments(tuple(stacks), merged.depth, draws, seed, own_depth=order == vocab.SEQUENTIAL)
            outcomes: dict[Plan, Predictions] = {}
            for plan in plans:
                if plan not in outcomes:
                    outcomes[plan] = evaluate(merged, plan, splits.test, splits.collate)
                step()
            models = [outcomes[plan] for plan in plans]
            rows += spread(arm, vocab.MERGED, order, models)
            for plan, outcome in outcomes.items():
                of: dict[str, Any] = {"arm": arm, "plan": str(plan), "order": order}
                rows.append(Score(vocab.MERGES, "accuracy", outcome.accuracy, **of, documents=len(outcome.hits)))
            if splits.classes:  # what is published is accuracy of classification
                rows += decisive(arm, kind, members[order], models, splits.chance, batch=_batch(splits.test))
    return rows


def evaluate_members(
    stacks: Mapping[str, Stack],
    examples: Any,
    collate: Callable[[Sequence[Any]], dict[str, Tensor]],
    order: str,
    seed: int,
) -> MemberOutcomes:
    """Every model and the ensemble of all, on every example, in one pass; each model in place under its own orders."""
    members: dict[str, list[Predictions]] = {name: [] for name in stacks}
    together = []
    size = BATCH if order == ORDERS[0] else _batch(examples)
    with ExitStack() as modes, torch.inference_mode():
        for stack in stacks.values():
            modes.enter_context(evaluating(stack.model))
        for number, batch in enumerate(DataLoader(examples, batch_size=size, collate_fn=collate)):
            logits_of_members = _logits(stacks, batch, order, seed, number, members)
            logits = mean_logits(logits_of_members)
            together.append(score_logits(logits, batch["labels"].to(logits.device)))
    return MemberOutcomes({name: concatenate(parts) for name, parts in members.items()}, concatenate(together))


def _logits(
    stacks: Mapping[str, Stack],
    batch: Mapping[str, Tensor],
    order: str,
    seed: int,
    number: int,
    members: Mapping[str, list[Predictions]],
) -> Iterator[Tensor]:
    for name, stack in stacks.items():
        inputs = {key: tensor.to(stack.device) for key, tensor in batch.items() if key != "labels"}
        with stack.under(_order(stack.depth, order, f"{seed}/member {name}/{number}"), single_pass=True):
            logits = main_tensor(stack.model(**accepted(stack.model, inputs)))
        members[name].append(score_logits(logits, batch["labels"].to(stack.device)))
        yield logits


def _batch(examples: Any) -> int:
    return max(1, min(BATCH, len(examples) // PIECES))


def _order(depth: int, order: str, seed: str) -> Plan:
    trained = list(range(depth))
    layers, chance = list(trained), random.Random(seed)
    while order == vocab.RANDOM_ORDER and layers == trained and depth > 1:
        chance.shuffle(layers)
    return Plan.of(layers)


def _rank(outcome: Predictions, *, text: bool) -> float:
    return outcome.mean_nll if text else -outcome.accuracy


def _member_rows(arm: str, order: str, outcomes: MemberOutcomes, chosen: str, batch: int) -> Iterator[Score]:
    yield from spread(arm, vocab.MEMBERS, order, list(outcomes.members.values()), batch)
    best = outcomes.members[chosen]
    of: dict[str, Any] = {"arm": arm, "order": order, "documents": len(best.hits)}
    for part, outcome in ((vocab.BEST_MEMBER, best), (vocab.ENSEMBLE, outcomes.ensemble)):
        for metric, bounded in estimate_metrics([outcome], batch):
            yield Score(vocab.MERGING, metric, *bounded, **of, strategy=part)
    for metric, values in (("accuracy", "hits"), ("nll", "nll")):
        gap = paired_difference([(outcomes.ensemble, best)], values, batch=batch)
        yield Score(vocab.MERGING, f"{metric}_above", *gap, **of, strategy=vocab.ENSEMBLE, against=vocab.BEST_MEMBER)


NODES = 4
"""So many nodes, or as many as there are layers."""

ORDERS = (vocab.SEQUENTIAL, vocab.RANDOM_ORDER)


def node_replacement(
    arm: str, merged: Stack, models: Sequence[str], splits: Splits, seed: int, step: Callable[[], None]
) -> Iterator[Score]:
    """Return the rows of one arm if every node of every model is lost once; `merged` runs layers of all `models`.

    A model counts with its mean over nodes; intervals are over models. `step` is called for every order.
    """
    for order in ORDERS:
        outcomes: dict[str, list[Predictions]] = {vocab.NODE_LOST: [], vocab.NODE_REPLACED: []}
        for lost, replaced in replacements(models, merged.depth, order, seed):
            for name, plan in ((vocab.NODE_LOST, lost), (vocab.NODE_REPLACED, replaced)):
                outcomes[name].append(evaluate(merged, plan, splits.test, splits.collate))
        nodes = len(outcomes[vocab.NODE_LOST]) // len(models)
        by_model = {
            name: [_mean(each[first : first + nodes]) for first in range(0, len(each), nodes)]
            for name, each in outcomes.items()
        }
        for name, each in by_model.items():
            yield from spread(arm, name, order, each)
        pairs = list(zip(by_model[vocab.NODE_REPLACED], by_model[vocab.NODE_LOST], strict=True))
        of: dict[str, Any] = {"arm": arm, "strategy": vocab.NODE_REPLACED, "order": order, "against": vocab.NODE_LOST}
        for metric, values in (("accuracy", "hits"), ("nll", "nll")):
            yield Score(vocab.MERGING, f"{metric}_above", *paired_difference(pairs, values), **of)
        step()


def _mean(outcomes: Sequence[Predictions]) -> Predictions:
    top5 = [each.hits_top5 for each in outcomes if each.hits_top5 is not None]
    hits, nll, scored = (
        np.mean([getattr(each, name) for each in outcomes], axis=0) for name in ("hits", "nll", "scored")
    )
    return Predictions(hits, np.mean(top5, axis=0) if top5 else None, nll, scored)


def replacements(models: Sequence[str], depth: int, order: str, seed: int) -> Iterator[tuple[Plan, Plan]]:
    """For every node of every model the plan without it, and the plan with the next model's layers in its stead.

    >>> for lost, replaced in replacements(["a", "b"], depth=2, order="sequential", seed=0):
    ...     print(f"{lost} | {replaced}")
    a:1 | b:0 a:1
    a:0 | a:0 b:1
    b:1 | a:0 b:1
    b:0 | b:0 a:1
    """
    for number, model in enumerate(models):
        other = models[(number + 1) % len(models)]
        for index, node in enumerate(node_layout(depth, min(NODES, depth), "blocks")):
            layers = list(range(depth))
            if order == vocab.RANDOM_ORDER:
                random.Random(f"{seed}/replaced/{model}/{index}").shuffle(layers)
            kept = [Visit(layer, source=model) for layer in layers if layer not in node]
            mixed = [Visit(layer, source=other if layer in node else model) for layer in layers]
            yield Plan(tuple(kept)), Plan(tuple(mixed))


def spread(arm: str, part: str, order: str, outcomes: Sequence[Predictions], batch: int = 1) -> Iterator[Score]:
    of: dict[str, Any] = {"arm": arm, "strategy": part, "order": order}
    each = [dict(estimate_metrics([outcome], batch)) for outcome in outcomes]
    for metric, bounded in estimate_metrics(outcomes, batch):
        yield Score(vocab.MERGING, metric, *bounded, **of, documents=len(outcomes[0].hits))
        if len(outcomes) > 1:
            values = [own[metric][0] for own in each]
            yield Score(vocab.MERGING, f"{metric}_spread", float(np.std(values, ddof=1)), **of)


SPLIT_FLAGS = ("--images or --text (--validation, --test)", "--limit", "--select-on", "--seed")


def compare_arms(
    run: Run,
    arms: Variants,
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
    run.store.replace_notes(MERGING, notes)
    contrasts = [row for row in rows if row.measure == CONTRAST]
    others = [row for row in rows if row.measure != CONTRAST]
    kept = replace_claims(run.store.scores(CONTRAST), contrasts, (MERGING,))
    run.store.replace_scores((CONTRAST, MERGES, MERGING), [*kept, *others])
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
    check_test_size(splits)
    return splits


def describe_merging(
    stack: Stack, several: Variants, splits: Splits, open_one: Callable[[SourceModel], Stack], seed: int
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
    return make_training_manifest(stack, combined, splits, seed=seed)


def describe_work(stack: Stack, splits: Splits, several: Variants, draws: int) -> list[str]:
    models = sum(len(models) for models in several.values())
    return [
        describe_model(stack),
        describe_splits(splits),
        f"{models} models of {len(several)} arm{'s' * (len(several) != 1)}: {2 * draws * len(several):,} "
        f"merged models, each evaluated on {len(splits.test):,} examples, and every model in two orders",
    ]
