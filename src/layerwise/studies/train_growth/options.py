"""Configurations of training in phases: `train growth`, and `train schedule`, which makes a schedule from a diagnosis.

A schedule is a preset, a file, or allocated by measured importance. This module needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from layerwise.bounded import kind_of, named
from layerwise.errors import MeasureError, PlanError, RunError, near_matches
from layerwise.measure.interventions.importance import SOURCES, importance_of, source_of
from layerwise.plan.schedule import PRESETS, GrowthSchedule, preset
from layerwise.plan.schedule.allocation import (
    MIN_EFFECT,
    PHASES,
    SHARPNESS,
    Allocation,
    allocation,
    explain_allocation,
)
from layerwise.plan.schedule.explain import chart
from layerwise.results import Run
from layerwise.results.training_record import trained_models
from layerwise.runner.experiment import Action, Alternatives, Experiment
from layerwise.runner.option import option
from layerwise.runner.options.common import CorpusOptions, LoadingOptions, PublishingOptions
from layerwise.runner.options.training import (
    OptimizationOptions,
    TrainingOptions,
    seeds_option,
    steps_option,
)
from layerwise.runner.reporter import Reporter

IMPORTANCE = "importance"
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class ScheduleSource:
    """The name of a schedule and its source: a preset, a parsed file, or the `run` of a diagnosis."""

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
    """Return the source that `--schedule` and `--importance` name.

    Raises `PlanError` for an unknown name or unreadable file, `RunError` for importance without a run.
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
        from layerwise.studies.train_growth.schedule_file import read_schedule

        content = read_schedule(Path(text))
        _refuse_name_of_preset(content, text)
        return ScheduleSource(content.name, content)
    known = near_matches(text, (*PRESETS, IMPORTANCE))
    raise PlanError(f"there is no schedule called {named(text)!r}; {known}; or a YAML file")


def _refuse_name_of_preset(schedule: GrowthSchedule, text: str) -> None:
    if schedule.name in PRESETS and schedule != preset(schedule.name, schedule.depth):
        raise PlanError(
            f"{text}: the schedule calls itself {schedule.name}, which is a preset of another kind; give it a name of "
            "its own"
        )


_OF_A_DIAGNOSIS = "curve_tokens:"

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
        None,
        f"Share of all layer-steps, at most; by default shares go as effect ** {SHARPNESS:g}.",
        metavar="SHARE",
        rare=True,
        above=0,
        most=1,
    )
    phases: int = option(
        PHASES, "Equal parts of the training, and so many phases at most.", metavar="N", least=1, most=1_000
    )
    min_effect: float | None = option(None, metavar="NATS", above=0)

    def check(self) -> None:
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
        from layerwise.studies.train_growth.schedule_file import write_schedule  # help does not wait for PyYAML

        write_schedule(schedule, self.output)
        reporter.result(explain_allocation(allocated))
        reporter.result(f"effects: {SOURCES[source]}")
        reporter.result(chart(schedule))
        reporter.result(f"schedule: {self.output}")
        return 0


def allocation_of(
    folder: Path, *, phases: int = PHASES, max_share: float | None = None, min_effect: float | None = None
) -> tuple[Allocation, str]:
    """Return the allocation by the importance measured in the run `folder`, and which of `SOURCES` it is from.

    `min_effect` is in nats/token (default: that of the diagnosis). Raises `RunError` for a run without importance,
    naming the command that makes one, and `PlanError` if no layer has an effect.
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
    given = [setting.removeprefix(_MIN_EFFECT) for setting in run.manifest.families if setting.startswith(_MIN_EFFECT)]
    return float(given[0]) if given else MIN_EFFECT


def _lacking(run: Run) -> str:
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


UNIFORM = "uniform"
"""The schedule in which everything learns all the time."""

MAX_EPOCHS = 2.0
"""A text that is read more often is memorized, and says nothing of a schedule."""


@dataclass(frozen=True, kw_only=True)
class GrowthExperiment(LoadingOptions, CorpusOptions, OptimizationOptions, Experiment):
    """What every experiment has that trains one decoder in phases, at the cost of uniform training.

    Without a model it is one of `size` with random weights, and without a text the standard library's prose.
    """

    ALTERNATIVES: ClassVar = (Alternatives(("steps", "epochs"), "say how long to train"),)

    model: str | None = option(
        None,
        "A checkpoint, or a config.json alone, which begins from random weights; by default that of --size.",
        metavar="MODEL",
        is_location=True,
    )
    size: Literal["tiny", "published"] = option("tiny", needs="!model")
    from_scratch: bool = option(False, "Draw new random weights in place of those of a checkpoint.", rare=True)
    max_length: int | None = option(None, metavar="N", least=2, rare=True)
    max_epochs: float = option(MAX_EPOCHS, "How often a training may read the text.", metavar="X", rare=True, above=0)
    seeds: int = seeds_option(1)
    steps: int | None = steps_option()
    epochs: float | None = option(None, metavar="X", above=0)

    def check(self) -> None:
        self.trainer_arguments(self.device)


@dataclass(frozen=True, kw_only=True)
class GrowthTraining(TrainingOptions, PublishingOptions, GrowthExperiment):
    """Train a model in phases, each on the layers that a schedule names, and uniformly beside it.

    --steps and --epochs are those of uniform training; --match says what the schedule spends as much of. Without a
    model and a text a tiny model with random weights reads the standard library's prose. If interrupted, run the same
    command again to resume.
    """

    VERB: ClassVar = "train growth"
    RUNS: ClassVar = "train_growth.steps:growth"
    EXAMPLES: ClassVar = (
        "--dry-run",
        "--schedule stacking --seeds 3",
        "--size published --steps 656 --match tokens --dry-run",
        "--model CHECKPOINT --schedule importance --importance RUN",
    )

    schedule: str = option(
        "published",
        "One of uniform, published, freezing, stacking, lisa, ramp, importance; or a YAML file.",
        metavar="NAME",
    )
    importance: Path | None = option(
        None, "A run of layerwise diagnose, for the schedule importance.", metavar="RUN", rare=True
    )
    match: Literal["tokens", "flops", "seconds"] = option(
        "flops", "What the schedule spends as much of as uniform training.", rare=True, needs="!schedule=uniform"
    )
    baseline: bool = option(True, rare=True, needs="!schedule=uniform")

    def check(self) -> None:
        super().check()
        self.check_repository()
        self.source()

    def source(self) -> ScheduleSource:
        return schedule_source(self.schedule, self.importance)
