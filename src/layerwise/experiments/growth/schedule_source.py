"""Where a schedule comes from: a preset, a file, or the importance that a diagnosis has measured.

A name is checked before anything heavy is imported; the schedule is made when the depth of the model is known.

`layerwise train schedule` allocates one from the rows of a diagnosis, explains it layer by layer, and writes it to a
file: nothing is measured, and this module needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerwise.bounded import kind_of, named
from layerwise.errors import MeasureError, PlanError, RunError, near_matches
from layerwise.experiments.experiment import Action
from layerwise.experiments.option import option
from layerwise.experiments.reporter import Reporter
from layerwise.measure.interventions.importance import SOURCES, importance_of, source_of
from layerwise.results import Run
from layerwise.results.training_record import trained_models
from layerwise.schedule import PRESETS, GrowthSchedule, preset
from layerwise.schedule.allocation import (
    MIN_EFFECT,
    PHASES,
    SHARPNESS,
    Allocation,
    allocation,
    explain_allocation,
)
from layerwise.schedule.explain import chart

IMPORTANCE = "importance"
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class ScheduleSource:
    """The name of a schedule, and what it is made from: a preset, what was read from a file, or the `run` of a
    diagnosis.
    """

    name: str
    content: GrowthSchedule | None = None
    run: Path | None = None

    def schedule(self, depth: int) -> GrowthSchedule:
        """The schedule for a model of `depth` layers. Raises `PlanError` for one of another depth."""
        if self.run is not None:
            schedule = allocation_of(self.run)[0].schedule(IMPORTANCE)
        else:
            schedule = self.content or preset(self.name, depth)
        schedule.check(depth)
        return schedule


def schedule_source(text: str, importance: Path | None) -> ScheduleSource:
    """The source that `--schedule` and `--importance` name.

    Raises `PlanError` for a name that there is not and a file that cannot be read, and `RunError` for importance
    without a run to take it from.
    """
    if text != IMPORTANCE and importance is not None:
        raise RunError(
            f"--importance is for --schedule {IMPORTANCE}, and the schedule is {text}; leave one of them out"
        )
    if text == IMPORTANCE:
        if importance is None:
            raise RunError(
                "a schedule by importance needs to know which layers are important; diagnose a model of the same depth "
                "first, such as this one part-way (layerwise diagnose MODEL --text PATH --run RUN), then give its run: "
                "--schedule importance --importance RUN; or write the schedule to a file (layerwise train schedule RUN "
                "--output FILE), and give that: --schedule FILE"
            )
        return ScheduleSource(IMPORTANCE, run=importance)
    if text in PRESETS:
        return ScheduleSource(text)
    if text.endswith(SUFFIXES) or kind_of(text) != "nothing":
        from layerwise.schedule.yaml import read_schedule

        content = read_schedule(Path(text))
        _refuse_name_of_preset(content, text)
        return ScheduleSource(content.name, content)
    known = near_matches(text, (*PRESETS, IMPORTANCE))
    raise PlanError(f"there is no schedule called {named(text)!r}; {known}; or a YAML file")


def _refuse_name_of_preset(schedule: GrowthSchedule, text: str) -> None:
    """A file may hold a preset under its own name, as long as it is that preset."""
    if schedule.name in PRESETS and schedule != preset(schedule.name, schedule.depth):
        raise PlanError(
            f"{text}: the schedule calls itself {schedule.name}, which is a preset of another kind; give it a name of "
            "its own"
        )


_OF_A_DIAGNOSIS = "curve_tokens:"
"""How a setting begins that the manifest of every diagnosis has, and no other."""

_MIN_EFFECT = "min_effect:"


@dataclass(frozen=True, kw_only=True)
class ImportanceSchedule(Action):
    """Write a growth schedule that trains every layer by its importance in a diagnosis.

    Importance is what skipping a layer costs. The file is what layerwise train growth --schedule takes.
    """

    VERB: ClassVar = "train schedule"
    EXAMPLES: ClassVar = (
        "runs/demo-1a2b3c4d --output growth.yaml",
        "runs/demo-1a2b3c4d --output growth.yaml --phases 8",
    )

    run: Path = option(help="Run folder of a diagnosis.", metavar="RUN", positional=True)
    output: Path = option(metavar="FILE")
    max_share: float | None = option(
        None, f"Share of all layer-steps, at most; by default shares go as effect ** {SHARPNESS:g}.", metavar="SHARE",
        rare=True, above=0, most=1)  # fmt: skip
    phases: int = option(
        PHASES, "Equal parts of the training, and so many phases at most.", metavar="N", least=1, most=1_000
    )
    min_effect: float | None = option(None, metavar="NATS", above=0)

    def check(self) -> None:
        """Raise `PlanError` for a file that is there, a folder that is not, and terms that no allocation can have."""
        if self.output.exists():
            raise PlanError(f"{self.output} is there already; name another file with --output, or remove that one")
        if not self.output.absolute().parent.is_dir():
            raise PlanError(
                f"there is no folder {self.output.parent} for the schedule {self.output.name}; make it first"
            )

    def act(self, reporter: Reporter) -> int:
        """Allocate the schedule, explain it and write it. Raises what `allocation_of` raises."""
        allocated, source = allocation_of(
            self.run, phases=self.phases, max_share=self.max_share, min_effect=self.min_effect
        )
        schedule = allocated.schedule()
        from layerwise.schedule.yaml import write_schedule  # help does not wait for PyYAML

        write_schedule(schedule, self.output)
        reporter.result(explain_allocation(allocated))
        reporter.result(f"effects: {SOURCES[source]}")
        reporter.result(chart(schedule))
        reporter.result(f"schedule: {self.output}")
        return 0


def allocation_of(
    folder: Path, *, phases: int = PHASES, max_share: float | None = None, min_effect: float | None = None
) -> tuple[Allocation, str]:
    """The allocation by the importance that the run in `folder` has measured, and which of `SOURCES` that is.

    `min_effect` is in nats per token, by default that of the diagnosis. Raises `RunError` for a run that is no
    diagnosis, or one without what importance is taken from, and names the command that makes one. Raises `PlanError`
    where no layer has an effect.
    """
    with Run.open(folder) as run:
        scores = run.store.scores()
        source = source_of(scores)
        if source is None:
            raise RunError(_lacking(run))
        try:
            importance = importance_of(scores)
        except MeasureError as refusal:
            raise RunError(f"{folder}: {refusal}") from None
        smallest = min_effect if min_effect is not None else _min_effect_of(run)
    return allocation(importance, min_effect=smallest, phases=phases, max_share=max_share), source


def _min_effect_of(run: Run) -> float:
    """The smallest effect that counted for the verdicts of a run."""
    given = [setting.removeprefix(_MIN_EFFECT) for setting in run.manifest.families if setting.startswith(_MIN_EFFECT)]
    return float(given[0]) if given else MIN_EFFECT


def _lacking(run: Run) -> str:
    """Why a run has no importance, and which command measures it."""
    models = trained_models(run.folder)
    settings = run.manifest.families
    if models:
        return (
            f"{run.folder} is a run of layerwise train, which does not say which layers matter; diagnose a model of "
            f"it, and give that run: layerwise diagnose {models[0]} --text PATH"
        )
    if not any(setting.startswith(_OF_A_DIAGNOSIS) for setting in settings):
        return (
            f"{run.folder} is a run of another kind ({', '.join(settings[:3])}), which does not say what skipping each "
            "layer costs; make one that does, and give that run: layerwise diagnose MODEL --text PATH"
        )
    notes = [note.text for note in run.store.notes("ablation")]
    why = notes[0] if notes else "the part is not among its parts, or not carried out yet"
    return (
        f"{run.folder} is a diagnosis without an ablation ({why}), and a schedule is made from what skipping each "
        f"layer costs; give a run of layerwise diagnose {run.manifest.model} --text PATH --parts ablation"
    )
