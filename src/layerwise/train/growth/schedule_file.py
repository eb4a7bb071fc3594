"""Growth schedules in files: YAML of the form that `layerwise.plan.growth.form` defines.

    name: two
    depth: 12
    phases:
    - name: top
      share: 0.25
      trains: 8-11
      embedding: false
    - name: all
      share: 0.75
      trains: all

A file is read with YAML's safe loader, which makes plain values and nothing else. A key that stands twice is refused:
YAML itself would silently take the second.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from layerwise.errors import PlanError
from layerwise.plan.growth import PRESETS, GrowthSchedule
from layerwise.results.run import write_whole


def read_schedule(path: Path) -> GrowthSchedule:
    """The schedule in a file. Raises `PlanError` that begins with the file, and names the phase and the key."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise PlanError(
            f"{path}: there is no such file; a schedule is a YAML file or one of {', '.join(PRESETS)}"
        ) from None
    except UnicodeDecodeError:
        raise PlanError(f"{path}: this is no text; a schedule is a YAML file in UTF-8") from None
    except OSError as error:
        raise PlanError(f"{path}: the file cannot be read: {error.strerror}") from None
    try:
        return GrowthSchedule.from_json(yaml.load(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise PlanError(f"{path}: this is not YAML: {' '.join(str(error).split())}") from None
    except PlanError as refused:
        raise PlanError(f"{path}: {refused.reason}", text=refused.text, position=refused.position) from None


def write_schedule(schedule: GrowthSchedule, path: Path) -> None:
    """Write a schedule, whole or not at all; `read_schedule` gives an equal one back.

    Raises `PlanError` where the file cannot be written.
    """
    content = yaml.safe_dump(schedule.to_json(), sort_keys=False, allow_unicode=True)
    try:
        write_whole(Path(path), content.encode())
    except OSError as error:
        raise PlanError(f"{path}: the schedule cannot be written: {error.strerror}") from None


class _Loader(yaml.SafeLoader):
    """The safe loader, which also refuses a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping, each of whose keys stands once."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            word = (key.tag, str(key.value))
            if word in seen:
                raise PlanError(f"line {key.start_mark.line + 1}: the key {key.value} stands twice; write it once")
            seen.add(word)
        return super().construct_mapping(node, deep)
