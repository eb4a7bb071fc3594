"""Read and write growth schedules as YAML (format: `layerwise.plan.schedule.serialization`)."""

from __future__ import annotations

from pathlib import Path

from layerwise.bounded import UnreadableError, decoded, kind_of, named, read_bytes
from layerwise.data.plain_yaml import SIZE, parse_yaml, write_yaml
from layerwise.errors import PlanError
from layerwise.plan.schedule import PRESETS, GrowthSchedule
from layerwise.results.run import write_whole


def read_schedule(path: Path) -> GrowthSchedule:
    """Read a growth schedule, or raise `PlanError` if the file is not one."""
    path = Path(path)
    if kind_of(path) == "nothing":
        raise PlanError(f"{named(path)} does not exist. Pass a YAML file or one of {', '.join(PRESETS)}.")
    try:
        return GrowthSchedule.from_json(parse_yaml(decoded(read_bytes(path, SIZE))))
    except UnreadableError as fault:
        raise PlanError(f"{path} {fault}. A schedule must be a YAML file of plain values in UTF-8.") from None
    except PlanError as refused:
        raise PlanError(f"{path}: {refused.reason}", text=refused.text, position=refused.position) from None


def write_schedule(schedule: GrowthSchedule, path: Path) -> None:
    """Write a growth schedule atomically, or raise `PlanError` if the file cannot be written."""
    content = write_yaml(schedule.to_json())
    try:
        write_whole(Path(path), content.encode())
    except OSError as error:
        raise PlanError(f"cannot write the schedule to {path} ({error.strerror}). Pass another file.") from None
