"""What every run of trained models shares: its manifest, its models, and the least data it can be evaluated on.

The folder of a model is `RUN/ARM/seed-N/model`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from layerwise.data.splits import Splits
from layerwise.errors import DataError, RunError
from layerwise.experiments.option import configured, options_of, plain
from layerwise.experiments.options.common import DataOptions
from layerwise.experiments.provenance import described
from layerwise.experiments.reporter import Reporter
from layerwise.results import Manifest, Run, Score
from layerwise.results.training_record import RETRAINED, TrainingRecord, refined_at, trained_models
from layerwise.results.vocabulary import FEWEST_UNITS, TRAINING
from layerwise.stack import Stack

Data = TypeVar("Data", bound=DataOptions)
_SOURCES = {"images", "text", "validation", "test"}

FAMILY = "robustness"
"""What the manifest of a run of `layerwise train robust` calls itself."""

UNFINISHED = "holds no finished model yet: run its `layerwise train robust` again to resume"


def training_manifest(
    stack: Stack, weights: str, splits: Splits, *, seed: int = 0, settings: Mapping[str, object] | None = None
) -> Manifest:
    """The provenance of trainings from a base of hash `weights`; methods and seeds can be added later."""
    return described(
        stack, weights, corpus=splits.name, corpus_hash=splits.digest, documents=len(splits.test),
        tokens=len(splits.test), window=1, families=(FAMILY,), tasks=(), seed=seed, settings=settings,
    )  # fmt: skip


def manifest_of_trainings(folder: Path) -> Manifest:
    """The manifest of a run of `layerwise train robust`. Raises `RunError` for a run of another kind."""
    with Run.open(folder) as run:
        manifest = run.manifest
    if FAMILY not in manifest.families:
        raise RunError(
            f"{folder} is a run of another kind ({', '.join(manifest.families[:3])}); give a folder that "
            "`layerwise train robust` has written, or a model"
        )
    return manifest


def as_trained(config: Data, manifest: Manifest) -> Data:
    """`config` with the examples of the training that `manifest` is of, wherever it says nothing else.

    Taken over are the options of the data, and the seed that divided them. Where `config` names a text or images, it
    takes no others from the training.
    """
    given = plain(config)
    names = {"seed", *options_of(DataOptions)} - (_SOURCES if given.keys() & _SOURCES else set())
    recorded = {name: value for name, value in manifest.experiment.items() if name in names}
    result: Data = configured(type(config), {**recorded, **given}, "the options of the training")
    return result


def check_enough(splits: Splits) -> None:
    """Raise `DataError` where fewer examples are kept for the report than an interval needs."""
    count = len(splits.test)
    if count < FEWEST_UNITS:
        raise DataError(
            f"{splits.name} leaves {count} example{'s' * (count != 1)} to report on, and an interval, and so any "
            f"conclusion, needs at least {FEWEST_UNITS}: give more documents, shorter windows of them (--max-length), "
            "or more images (--limit)"
        )


def describe_splits(splits: Splits) -> str:
    """How many examples a model is trained on, selected by and evaluated on."""
    sizes = f"{len(splits.train):,} to train, {len(splits.validation):,} to select, {len(splits.test):,} to report"
    origin = f" ({splits.origin})" if splits.origin else ""
    return f"{splits.name}: {sizes}{origin}" + (
        f"; {len(splits.skipped):,} could not be read" if splits.skipped else ""
    )


def split_notes(splits: Splits) -> tuple[str, ...]:
    """What a reader of the numbers must know about the examples behind them, in sentences."""
    notes = []
    if splits.origin:
        reported = len(splits.test)
        notes.append(f"{splits.name} is {splits.origin}: {reported:,} images, none of which any model was trained on.")
    if splits.selects_on_reported:
        notes.append(
            "Checkpoints were selected on the examples that are reported (--select-on reported), as papers do: the "
            "best of several checkpoints on those examples does better on them than on others."
        )
    return tuple(notes)


def refuse_other_splits(what: str, data_name: str, splits: Splits, options: Sequence[str]) -> RunError:
    """The refusal of splits that a model may have learned from; `what` is the model or the run, `options` are flags."""
    return RunError(
        f"{what} was trained on {data_name} with other splits than these ({splits.name}), so its test examples may "
        f"have been learned from. Give the {', '.join(options[:-1])} and {options[-1]} of its training"
    )


def training_rows(records: Mapping[tuple[str, int], TrainingRecord]) -> list[Score]:
    """Rows of measure `training`, by arm and seed: the losses that were noted, and what each training took.

    The `amount` of a noted loss is its step. Models that were refined for fewer layers are one arm, `RETRAINED`, and
    their `condition` says for how many.
    """
    rows = []
    for (arm, seed), record in records.items():
        layers = refined_at(arm)
        of: dict[str, Any] = {"arm": arm, "seed": seed} if layers is None else {
            "arm": RETRAINED, "seed": seed, "condition": f"{layers} layers",
        }  # fmt: skip
        taken = {
            "steps": record.steps,
            "epochs": record.epochs,
            "seconds": record.seconds,
            "best_step": record.best_step,
            "examples": record.examples,
            **record.figures,
        }
        rows += [Score(TRAINING, name, float(value), **of) for name, value in taken.items()]
        noted = {(moment.step, moment.kind): moment.loss for moment in record.history}
        rows += [
            Score(TRAINING, f"{kind}_loss", loss, amount=float(step), **of) for (step, kind), loss in noted.items()
        ]
    return rows


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model of an experiment: its arm and seed, the folder that it is opened from, and that of its stored surveys."""

    arm: str
    seed: int
    folder: Path
    survey_folder: Path

    @property
    def label(self) -> str:
        """The subject of its rows.

        >>> TrainedModel("elc", 1, Path("run/elc/seed-1/model"), Path("run/elc/seed-1")).label
        'elc/1'
        """
        return f"{self.arm}/{self.seed}"


def finished_models(run: Path) -> tuple[TrainedModel, ...]:
    """Every model in a run folder whose training is finished, by arm and seed."""
    return tuple(
        TrainedModel(model.parts[-3], int(model.parts[-2].removeprefix("seed-")), model, model.parent)
        for model in trained_models(run)
    )


def manifest_of(run: Path) -> Manifest:
    """The manifest of the run in a folder. Raises `RunError` where there is none."""
    with Run.open(run) as opened:
        return opened.manifest


def discard_trainings(run: Path) -> None:
    """Remove every training in a run folder, finished or not."""
    for folder in run.glob("*/seed-*"):
        shutil.rmtree(folder)


def training_progress(reporter: Reporter, label: str) -> Callable[[int, int, float | None], None]:
    """A callback for the step, the number of steps and the loss of the training called `label`."""

    def progress(step: int, steps: int, loss: float | None) -> None:
        reporter.progress(label if loss is None else f"{label}  loss {loss:.3f}", step / steps)

    return progress
