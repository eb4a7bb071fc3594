"""The fine-tunings of a study of layer weights as pieces: workers make them, and what was answered is kept in the run.

Where the rows are made, what is kept is read (`layerwise.experiments.finetuned_tasks`), so these are never made twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from layerwise.data.suites.classification import Task
from layerwise.experiments.cluster.pieces import carried_out, refuse_unseen
from layerwise.experiments.finetuned_tasks import PREDICTIONS, FineTunedModel, fine_tuned, kept_file
from layerwise.experiments.layer_weights_study.attribution import attribution_rows, is_attributed
from layerwise.experiments.provenance import in_words
from layerwise.experiments.reporter import Reporter
from layerwise.measure.workers import Plain, Spread
from layerwise.stack.load import resolve_device
from layerwise.train.finetune.fine_tuning import FineTuningConfig

PART = "fine-tuning"
"""What a piece is called that is a fine-tuning."""


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

        def progress(label: str, step: int, steps: int) -> None:
            reporter.progress(label, step / steps)

        if self.attributed:
            attribution_rows([self.model], self.task, self.settings, folder, progress=progress, device=device)
            return
        fine_tuned(self.model, self.task, self.settings, 0, keep=folder / PREDICTIONS, progress=progress, device=device)


def tune_elsewhere(
    tunings: Iterator[StudyTuning], folder: Path, device: str, spread: Spread, reporter: Reporter
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
