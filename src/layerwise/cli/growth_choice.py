"""The schedule that a user names: a preset, a file, or what the importance of layers says.

A name is looked at before anything heavy is loaded, so that a slip of the keyboard is answered at once; the schedule
itself is made when the depth of the model is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from layerwise.bounded import kind_of, named
from layerwise.errors import PlanError, RunError, near_matches
from layerwise.plan.growth import PRESETS, GrowthSchedule, preset

IMPORTANCE = "importance"
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Choice:
    """A schedule that was asked for: `name` of a preset or `importance`, or one that was read from a file.

    `run` is the diagnosis that importance is taken from.
    """

    name: str
    read: GrowthSchedule | None = None
    run: Path | None = None

    def schedule(self, depth: int) -> GrowthSchedule:
        """The schedule for a model of `depth` layers. Raises `PlanError` for one of another depth."""
        if self.run is not None:
            from layerwise.cli.emission import allocated

            found = allocated(self.run)[0].schedule(IMPORTANCE)
        else:
            found = self.read or preset(self.name, depth)
        found.check(depth)
        return found


def check_choice(text: str, importance: Path | None) -> Choice:
    """What was asked for by `--schedule` and `--importance`.

    Raises `PlanError` for a name that there is not and a file that cannot be read, and `RunError` for importance
    without a run to take it from.
    """
    if text != IMPORTANCE and importance is not None:
        raise RunError(f"--importance is for --schedule {IMPORTANCE}, and {text} was asked for; leave one of them out")
    if text == IMPORTANCE:
        if importance is None:
            raise RunError(
                "a schedule by importance needs to know which layers are important; diagnose a model of the same depth "
                "first, such as this one part-way (layerwise diagnose MODEL --text PATH --run RUN), then give its run: "
                "--schedule importance --importance RUN; or write the schedule to a file with --emit-schedule FILE, "
                "and give that: --schedule FILE"
            )
        return Choice(IMPORTANCE, run=importance)
    if text in PRESETS:
        return Choice(text)
    if text.endswith(SUFFIXES) or kind_of(text) != "nothing":
        from layerwise.train.growth.schedule_file import read_schedule

        found = read_schedule(Path(text))
        _refuse_taken(found, text)
        return Choice(found.name, read=found)
    known = near_matches(text, (*PRESETS, IMPORTANCE))
    raise PlanError(f"there is no schedule called {named(text)!r}; {known}; or a YAML file")


def _refuse_taken(found: GrowthSchedule, text: str) -> None:
    """A file may hold a preset under its own name, as long as it is that preset."""
    if found.name in PRESETS and found != preset(found.name, found.depth):
        raise PlanError(
            f"{text}: the schedule calls itself {found.name}, which is a preset of another kind; give it a name of its "
            "own"
        )
