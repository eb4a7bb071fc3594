"""A course of trainings: several methods and seeds from one base, then what their models survive, and the report.

Every training resumes by itself, so a course that was stopped goes on where it was. Under torchrun every process takes
part in the trainings, and the first one alone writes rows and speaks.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from layerwise import report as pages
from layerwise.cli.findings import headline, report_data
from layerwise.cli.lending import lend
from layerwise.cli.screen import PartBar, duration, errors, output, write
from layerwise.cli.sitting import begin, speaker
from layerwise.data.splits import Splits
from layerwise.errors import DataError, RunError
from layerwise.measure.edges import ALPHA, alpha_rows
from layerwise.measure.provenance import described, folder_of, in_words
from layerwise.measure.survey import Questions, conditions
from layerwise.merge.lenders import Lender, by_arm
from layerwise.merge.study import MEASURE as MERGING
from layerwise.results import Manifest, Run
from layerwise.results.model_name import model_name
from layerwise.results.pedigree import Pedigree, refined_at, trained_models
from layerwise.results.units import FEWEST_UNITS
from layerwise.stack import Stack
from layerwise.train.assessment import Candidate, Watcher, assess, training_rows
from layerwise.train.folder import occupant
from layerwise.train.processes import is_first_process, shared_recipe, training_settings
from layerwise.train.recipe import Options, Recipe
from layerwise.train.trained import Trained, open_trained, saved_edges
from layerwise.train.training import Base, asked_for, train

FAMILY = "robustness"
"""What the manifest of a course calls itself; `layerwise robustness` reads it back."""


@dataclass(frozen=True, slots=True)
class Course:
    """What is trained: recipes, each with every seed from 0 on, from `base` on `splits`.

    The recipes are those that `options` give for some methods; a run holds methods of one choice of options.
    `arguments` are further `TrainingArguments`, which win over the recipes'.
    """

    base: Base
    splits: Splits
    options: Options
    recipes: tuple[Recipe, ...]
    seeds: int
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def trainings(self, folder: Path) -> Iterator[tuple[Recipe, int, Path]]:
        """Every training: its recipe, its seed, and its folder in that of the course."""
        for seed in range(self.seeds):
            for recipe in self.recipes:
                yield recipe, seed, folder / recipe.arm / f"seed-{seed}"


def manifest_of(stack: Stack, weights: str, splits: Splits, settings: Mapping[str, object] | None = None) -> Manifest:
    """The provenance of a course from a base of hash `weights`; methods and seeds can be added later."""
    return described(
        stack, weights, corpus=splits.name, corpus_hash=splits.digest, documents=len(splits.test),
        tokens=len(splits.test), window=1, families=(FAMILY,), tasks=(), seed=0, command=tuple(sys.argv),
        settings=settings,
    )  # fmt: skip


def refuse_too_few(splits: Splits) -> None:
    """Raise `DataError` where fewer examples are kept for the report than an interval needs."""
    count = len(splits.test)
    if count < FEWEST_UNITS:
        raise DataError(
            f"{splits.name} leaves {count} example{'s' * (count != 1)} to report on, and an interval, and so any "
            f"conclusion, needs at least {FEWEST_UNITS}: give more documents, shorter windows of them (--length), or "
            "more images (--limit)"
        )


def hold(course: Course, stack: Stack, questions: Questions, folder: Path | None, *, fresh: bool, quiet: bool) -> None:
    """Train what is not trained yet into `folder`, or into one named by what is learned, and assess all of it."""
    next(conditions(stack.depth, questions))  # a model that cannot be asked is refused before it is trained
    refuse_too_few(course.splits)
    manifest = manifest_of(stack, course.base.weights, course.splits, training_settings(course.arguments))
    folder = folder or folder_of(manifest, shared_recipe(asdict(course.options), course.arguments))
    if not is_first_process():
        _train(course, folder, lambda label, done, total: None, lambda text: None)
        return
    say = speaker(quiet)
    with begin(folder, manifest, fresh) as run:
        if fresh:
            discard_models(folder)
        for recipe, seed, place in course.trainings(folder):
            occupant(place, asked_for(course.base, course.splits, recipe, seed))  # refused before anything is trained
        _announce(course, stack, run, say)
        try:
            with PartBar(quiet) as bar:
                _train(course, folder, lambda label, done, total: bar.update(label, done / total), say)
                opened = partial(open_trained, device=stack.device.type)
                review(
                    run, candidates_of(folder), course.splits, questions, say, bar, open_model=opened,
                    how=in_words(stack.device, "auto"),
                )  # fmt: skip
        except KeyboardInterrupt:
            write(errors, "stopped: finished models and checkpoints are kept; the same command goes on from here")
            raise
        tell(run)


def review(
    run: Run,
    candidates: Sequence[Candidate],
    splits: Splits,
    questions: Questions,
    say: Callable[[str], None],
    bar: PartBar,
    open_model: Callable[[Path], Trained] = open_trained,
    how: str = "",
) -> None:
    """Assess `candidates` into `run`, with what is known of their trainings; `how` they are computed with, in words."""
    pedigrees = {each.label: Pedigree.read(each.folder) for each in candidates}
    known = {label: pedigree for label, pedigree in pedigrees.items() if pedigree is not None}
    run.store.replace_scores("training", training_rows(known))
    wirings = {each.label: saved_edges(each.folder) for each in candidates}
    alpha = [row for label, edges in wirings.items() if edges is not None for row in alpha_rows(label, edges)]
    if alpha:
        run.store.replace_scores(ALPHA, alpha)
    watcher = Watcher(say, lambda label, done, total: bar.update(f"surveying {label}", done / total))
    fresh = assess(candidates, splits, questions, run, watcher, open_model=open_model, how=how)
    if questions.layers and (fresh or not run.store.scores(MERGING)):
        whole = [each for each in candidates if refined_at(each.arm) is None]
        arms = by_arm([Lender(each.arm, str(each.folder), pedigrees[each.label]) for each in whole])
        lend(
            run, arms, splits, lambda lender: open_model(Path(lender.place)).stack, bar,
            draws=questions.orders, seed=questions.seed,
        )  # fmt: skip


def tell(run: Run) -> None:
    """Print where every arm stands, and write the report."""
    data = report_data(run)
    write(output, headline(data))
    pages.write(run.report, pages.render(data))
    write(output, f"report: {run.report}")


def candidates_of(folder: Path) -> tuple[Candidate, ...]:
    """Every finished model in the folder of a course."""
    return tuple(
        Candidate(model.parts[-3], int(model.parts[-2].removeprefix("seed-")), model, model.parent)
        for model in trained_models(folder)
    )


def _train(course: Course, folder: Path, progress: Callable[[str, int, int], None], say: Callable[[str], None]) -> None:
    for recipe, seed, place in course.trainings(folder):
        label = f"{recipe.arm}/{seed}"

        def told(step: int, steps: int, loss: float | None, label: str = label) -> None:
            progress(label if loss is None else f"{label}  loss {loss:.3f}", step, steps)

        done = train(course.base, course.splits, recipe, seed, place, progress=told, arguments=course.arguments)
        say(
            f"{label}: {done.steps:,} step{'s' * (done.steps != 1)} in {duration(done.seconds)}, "
            f"least validation loss at step {done.best_step:,}"
        )


def _announce(course: Course, stack: Stack, run: Run, say: Callable[[str], None]) -> None:
    splits = course.splits
    say(f"{model_name(stack.source.name)}: {stack.depth} layers, {stack.device}")
    sizes = f"{len(splits.train):,} to train, {len(splits.validation):,} to select, {len(splits.test):,} to report"
    say(f"{splits.name}: {sizes}" + (f"; {len(splits.skipped):,} could not be read" if splits.skipped else ""))
    say(f"{len(course.recipes)} ways of training, {course.seeds} seed{'s' * (course.seeds != 1)} each")
    say(f"run folder: {run.folder}")
    for change in run.changes:
        say(f"note: {change}")


def discard_models(folder: Path) -> None:
    """Remove every training of a course, finished or not."""
    for place in folder.glob("*/seed-*"):
        shutil.rmtree(place)


def check_is_course(run: Run) -> None:
    """Raise `RunError` unless the run was written by `layerwise train`."""
    if FAMILY not in run.manifest.families:
        raise RunError(
            f"{run.folder} is a run of another kind ({', '.join(run.manifest.families[:3])}); give a folder that "
            "`layerwise train` has written, or a model"
        )
