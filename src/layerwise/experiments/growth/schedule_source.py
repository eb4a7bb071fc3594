"""Where a schedule comes from: a preset, a file, or the importance that a diagnosis has measured.

A name is checked before anything heavy is imported; the schedule is made when the depth of the model is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from layerwise.bounded import kind_of, named
from layerwise.errors import PlanError, RunError, near_matches
from layerwise.schedule import PRESETS, GrowthSchedule, preset

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
            from layerwise.experiments.diagnosis.schedule import allocation_of

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
