"""Trainings of arms as pieces: every arm with every seed is one, which any worker can carry out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from layerwise.experiments.cluster.pieces import carried_out, refuse_unseen
from layerwise.experiments.growth.arms import GrowthArm, length_of
from layerwise.experiments.growth.held_out import FILE as HELD_OUT_FILE
from layerwise.experiments.growth.held_out import held_out_loss
from layerwise.experiments.growth.task import GrowthTask
from layerwise.experiments.reporter import Reporter
from layerwise.measure.workers import Plain, Spread
from layerwise.results.training_record import FILE, MODEL
from layerwise.schedule import GrowthSchedule
from layerwise.train.recipe import Settings


@dataclass(frozen=True, slots=True)
class ArmTraining:
    """One training: an arm and a seed, the folder of all arms, and what stands before its name in what is reported.

    Where it is `measured`, the loss on the held-out text is a part of it.
    """

    arm: GrowthArm
    seed: int
    folder: Path
    prefix: str = ""
    measured: bool = False

    @property
    def own_folder(self) -> Path:
        """The folder of the training."""
        return self.folder / self.arm.name / f"seed-{self.seed}"

    @property
    def is_finished(self) -> bool:
        """Whether its model is there, and its held-out loss if that is wanted."""
        wanted = [MODEL + "/" + FILE, *([HELD_OUT_FILE] if self.measured else [])]
        return all((self.own_folder / name).is_file() for name in wanted)

    def plain(self) -> Plain:
        """As plain values."""
        arm = self.arm
        return {
            "arm": arm.name, "schedule": arm.schedule.to_json(), "settings": asdict(arm.settings),
            "steps": arm.steps[self.seed], "seed": self.seed, "folder": str(self.folder.absolute()),
            "prefix": self.prefix, "measured": self.measured,
        }  # fmt: skip

    @classmethod
    def of(cls, piece: Plain) -> ArmTraining:
        """What `plain` describes."""
        schedule, settings = GrowthSchedule.from_json(piece["schedule"]), Settings(**piece["settings"])
        arm = GrowthArm(piece["arm"], schedule, settings, {piece["seed"]: piece["steps"]})
        return cls(arm, piece["seed"], Path(piece["folder"]), piece["prefix"], piece["measured"])

    def carry_out(self, task: GrowthTask, arguments: Mapping[str, Any], reporter: Reporter) -> None:
        """Train, or resume; and measure."""
        self.arm.train(task, self.seed, self.folder, arguments, reporter, prefix=self.prefix)
        if self.measured:
            arm, share = length_of(self.arm.name)
            held_out_loss(self.own_folder, task, arm=arm, seed=self.seed, amount=share)


def train_arms(
    trainings: Sequence[ArmTraining],
    task: GrowthTask,
    arguments: Mapping[str, Any],
    spread: Spread,
    reporter: Reporter,
) -> Iterator[int]:
    """The numbers of the trainings, as they are finished; those that are in the folder already are checked first.

    Raises what `GrowthArm.train` raises, and `RunError` where a worker wrote what is not seen here.
    """
    due = [number for number, each in enumerate(trainings) if not each.is_finished]
    for number, each in enumerate(trainings):
        if number not in due:
            each.carry_out(task, arguments, reporter)
            yield number

    def work(piece: Plain, reporter: Reporter) -> None:
        ArmTraining.of(piece).carry_out(task, arguments, reporter)

    for index in carried_out(spread, [trainings[number].plain() for number in due], work, reporter):
        done = trainings[due[index]]
        refuse_unseen(f"{done.arm.name}/{done.seed}", spread, done.is_finished)
        yield due[index]
