"""The fine-tunings of a study of layer weights: which models are taught what, by workers too, and the rows of that.

What was answered is kept in the run (`layerwise.experiments.finetuned_tasks`), so that none is made twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from layerwise.data.suites.classification import Task
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.experiments.cluster.pieces import carried_out, refuse_unseen
from layerwise.experiments.engines.steps import UnitSession
from layerwise.experiments.finetuned_tasks import (
    PREDICTIONS,
    FineTunedModel,
    Progress,
    fine_tuned,
    kept_file,
    run_benchmarks,
)
from layerwise.experiments.layer_weights_study import arms as study
from layerwise.experiments.layer_weights_study.attribution import attribution_rows, is_attributed, with_arms
from layerwise.experiments.pretraining.trainings import Pretrainings
from layerwise.experiments.provenance import in_words
from layerwise.experiments.reporter import Reporter
from layerwise.measure.workers import Plain, Spread
from layerwise.models import ElcForMaskedLM
from layerwise.models.elc.rewire import rewired
from layerwise.results.training_record import MODEL
from layerwise.results.vocabulary import ATTRIBUTION, BACKBONE, LAYER_WEIGHTS
from layerwise.stack.load import resolve_device
from layerwise.train.finetune.fine_tuning import FineTuningConfig

PART = "fine-tuning"
"""What a piece is called that is a fine-tuning."""

REWIRED = "rewired"
"""The folder of models that were given layer weights after their pretraining."""

_HELD = (".scalars",)
"""The layer weights, where a fine-tuning holds them."""


@dataclass(frozen=True, slots=True)
class StudyTuning:
    """One model that is taught one task; where it is `attributed`, what its decisions come from is kept too."""

    model: FineTunedModel
    task: Task
    settings: FineTuningConfig
    attributed: bool = False

    def plain(self, folder: Path) -> Plain:
        """As plain values; the task by its name, since workers have the tasks."""
        return {
            "part": PART, "arm": self.model.arm, "seed": self.model.seed,
            "model": str(Path(self.model.location).absolute()),
            "task": (self.task.measure, self.task.name), "settings": asdict(self.settings),
            "attributed": self.attributed, "folder": str(folder.absolute()),
        }  # fmt: skip

    @classmethod
    def of(cls, piece: Plain, tasks: Sequence[Task]) -> StudyTuning:
        """What `plain` describes."""
        task = next(task for task in tasks if (task.measure, task.name) == tuple(piece["task"]))
        model = FineTunedModel(piece["arm"], piece["seed"], piece["model"])
        return cls(model, task, FineTuningConfig(**piece["settings"]), piece["attributed"])

    def is_kept(self, folder: Path, device: str) -> bool:
        """Whether the run in `folder` has what was answered."""
        if self.attributed:
            return is_attributed(self.model, self.task, self.settings, folder, device)
        used = self.task.limited(self.settings.training_limit, self.settings.test_limit)
        how = in_words(resolve_device(device), "float32")
        return kept_file(folder / PREDICTIONS, self.model, used, self.settings, 0, how).is_file()

    def carry_out(self, folder: Path, device: str, reporter: Reporter) -> None:
        """Teach the task, and keep in `folder` what was answered."""
        progress = _progress(reporter)
        if self.attributed:
            attribution_rows([self.model], self.task, self.settings, folder, progress=progress, device=device)
            return
        fine_tuned(self.model, self.task, self.settings, 0, keep=folder / PREDICTIONS, progress=progress, device=device)


@dataclass(frozen=True, slots=True)
class TuningSet:
    """Models that are taught the same tasks by the same settings."""

    models: Sequence[FineTunedModel]
    tasks: Sequence[Task]
    settings: FineTuningConfig

    def tunings(self) -> Iterator[StudyTuning]:
        """Every fine-tuning."""
        for model in self.models:
            for task in self.tasks:
                yield StudyTuning(model, task, self.settings, task.name == study.ATTRIBUTED)


def tuning_sets(
    pretrainings: Pretrainings, run: Path, taught: Sequence[tuple[Sequence[Task], FineTuningConfig]]
) -> list[TuningSet]:
    """Every arm is taught tasks by settings: with layer weights that learn, and those arms that hold them without."""
    arms = [recipe.arm for recipe in pretrainings.recipes]
    free: list[FineTunedModel] = []
    held: list[FineTunedModel] = []
    for seed in range(pretrainings.seeds):
        models = {arm: run / arm / f"seed-{seed}" / MODEL for arm in (*arms, study.AT_EQUAL_SECONDS)}
        free += [FineTunedModel(arm, seed, model) for arm, model in models.items() if arm != study.FROZEN]
        free.append(FineTunedModel(study.REWIRED, seed, _rewired(models[BACKBONE], run, seed)))
        held.append(FineTunedModel(study.KEPT, seed, models[LAYER_WEIGHTS]))
        held.append(FineTunedModel(study.FROZEN, seed, models[study.FROZEN]))
    return [
        TuningSet(models, tasks, replace(settings, frozen=frozen))
        for tasks, settings in taught
        for models, frozen in ((free, ()), (held, _HELD))
    ]


def _rewired(model: Path, run: Path, seed: int) -> Path:
    """The folder of a copy of `model` with layer weights that change nothing yet."""
    folder = run / REWIRED / f"{BACKBONE}-{seed}"
    if not (folder / "tokenizer.json").is_file():
        rewired(ElcForMaskedLM.from_pretrained(model)).save_pretrained(folder)
        load_tokenizer(model).save_pretrained(folder)
    return folder


def tune(session: UnitSession, sets: Sequence[TuningSet], device: str) -> None:
    """Make the fine-tunings that the run does not have, and store the rows of all."""
    run, progress = session.run, _progress(session.reporter)
    tunings = [each for own in sets for each in own.tunings()]
    tune_elsewhere(tunings, run.folder, device, session.spread, session.reporter)
    attributed = [
        row
        for each in tunings
        if each.attributed
        for row in attribution_rows(
            [each.model], each.task, each.settings, run.folder, progress=progress, device=device
        )
    ]
    run.store.replace_scores(ATTRIBUTION, with_arms(attributed))
    for own in sets:
        run_benchmarks(own.models, own.tasks, own.settings, run, seeds=1, progress=progress, device=device)


def tune_elsewhere(
    tunings: Sequence[StudyTuning], folder: Path, device: str, spread: Spread, reporter: Reporter
) -> None:  # fmt: skip
    """Let workers make the fine-tunings that the run in `folder` does not have; nothing is done without workers.

    Raises `RunError` where a worker kept what is not seen here.
    """
    if spread.is_here:
        return
    due = [each for each in tunings if not each.is_kept(folder, device)]
    pieces = [each.plain(folder) for each in due]
    for number in carried_out(spread, pieces, _nowhere_else, reporter, "fine-tunings"):
        refuse_unseen(f"the fine-tuning of {due[number].model.label}", spread, due[number].is_kept(folder, device))


def _nowhere_else(piece: Plain, reporter: Reporter) -> None:
    raise AssertionError("fine-tunings that are made here are made where their rows are")


def _progress(reporter: Reporter) -> Progress:
    def progress(label: str, step: int, steps: int) -> None:
        reporter.progress(label, step / steps)

    return progress
