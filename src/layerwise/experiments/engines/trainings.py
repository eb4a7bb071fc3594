"""The work of trainings and of evaluating what comes of them: a few steps on a copy, and a few examples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Subset

from layerwise.data.splits import Splits
from layerwise.experiments.engines.work import Work, WorkCost, is_short
from layerwise.measure.interventions.accuracy import BATCH, evaluate
from layerwise.plan import Plan
from layerwise.results.training_record import FILE, MODEL
from layerwise.stack import Stack
from layerwise.train.checkpoint_dir import last_checkpoint, steps_of
from layerwise.train.recipe import Recipe
from layerwise.train.training import Base, trainer_of
from layerwise.train.trial_steps import FEW, training_times

_KEPT = 3
"""Checkpoints that are on disk at once: the last, the best, and the one that is being written."""

_CALLS = 5
"""A step, forward and backward with the optimizer's, beside a pass of the model."""


def steps_behind(folders: Sequence[Path]) -> list[int]:
    """The steps that are behind each training that is not finished, by its folder: those of its last checkpoint."""
    left = [folder for folder in folders if not (folder / MODEL / FILE).is_file()]
    return [0 if (last := last_checkpoint(folder)) is None else steps_of(last) for folder in left]


def training_work(name: str, make: Callable[[Path, Mapping[str, Any]], Any], behind: Sequence[int]) -> Work:
    """Trainings that `make` gives the Trainer of, and that go on behind so many steps each."""

    def measure(seconds: float) -> WorkCost:
        times = training_times(make, seconds)
        return WorkCost(
            sum(times.seconds(done) for done in behind), len(behind) * times.model_bytes,
            _KEPT * times.checkpoint_bytes, f"{times.timed} of {times.steps:,} steps",
        )  # fmt: skip

    return Work(name, measure)


def recipe_works(
    base: Base, splits: Splits, recipes: Mapping[str, tuple[Recipe, Sequence[int]]], arguments: Mapping[str, Any]
) -> Iterator[Work]:
    """The trainings of recipes by name, each with the steps behind those of its trainings that are not finished."""
    for name, (recipe, behind) in recipes.items():
        if behind:

            def make(folder: Path, quiet: Mapping[str, Any], recipe: Recipe = recipe) -> Any:
                return trainer_of(base, splits, recipe, 0, folder, arguments={**arguments, **quiet})

            yield training_work(name, make, behind)


def are_short(
    stack: Stack, splits: Splits, recipes: Mapping[str, tuple[Recipe, Sequence[int]]], evaluated: float = 0.0
) -> bool:
    """Whether the trainings, and as many examples as are `evaluated`, are short for any processor."""
    weights = sum(parameter.numel() for parameter in stack.model.parameters())
    positions = _positions(stack, splits)
    steps = examples = 0.0
    for recipe, behind in recipes.values():
        whole = recipe.steps(len(splits.train))
        left = sum(whole - done for done in behind)
        steps += left
        examples += left * recipe.settings.batch_size
    passes = steps * _CALLS + evaluated / BATCH
    return is_short(weights * positions * (6 * examples + 2 * evaluated), passes)


def evaluation_work(name: str, stack: Stack, splits: Splits, count: float, *, filled_in: bool = False) -> Work:
    """`count` evaluations of a whole model of this size on the examples to report, by some of them."""
    examples = len(splits.test)

    def timed(few: int, first: int) -> float:
        chosen = Subset(splits.test, [(first + number * examples // few) % examples for number in range(few)])
        begun = time.perf_counter()
        evaluate(stack, Plan.identity(stack.depth), chosen, splits.collate, filled_in=filled_in)
        return (time.perf_counter() - begun) / few

    def measure(seconds: float) -> WorkCost:
        end = time.perf_counter() + seconds
        timed(min(examples, FEW), 0)  # the first one warms up
        each = timed(min(examples, FEW), 1)
        # As many more as there is time for, up to a batch: those of a whole batch take less each.
        more = min(examples, BATCH, int((end - time.perf_counter()) / each))
        each = timed(more, 2) if more > FEW else each
        return WorkCost(count * examples * each, measured_on=f"{max(more, FEW)} of {examples:,} examples")

    return Work(name, measure)


def _positions(stack: Stack, splits: Splits) -> int:
    """The positions of one example in the model."""
    example = splits.collate([splits.train[0]])
    if "input_ids" in example:
        return int(example["input_ids"].numel())
    config: Any = getattr(stack.model, "config", None)
    side, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    if isinstance(side, int) and isinstance(patch, int):
        return int((side // patch) ** 2 + 1)
    return max(int(value.numel()) for value in example.values())
