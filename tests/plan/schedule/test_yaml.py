"""A schedule in a file is the schedule, and what is wrong in a file is named with the file."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawn_schedules import schedules
from layerwise.errors import PlanError
from layerwise.experiments.growth.schedule_file import read_schedule, write_schedule
from layerwise.plan.schedule import PRESETS, GrowthSchedule
from tier import by_tier

GOOD = "name: by hand\ndepth: 4\nphases:\n- {name: a, share: 0.5, trains: 0-1}\n- {name: b, share: 0.5, trains: all}\n"


@settings(max_examples=by_tier(fast=5, full=15, nightly=60))
@given(schedule=schedules())
def test_a_file_gives_the_schedule_back(schedule: GrowthSchedule) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.yaml"
        write_schedule(schedule, path)
        assert read_schedule(path) == schedule


@settings(max_examples=by_tier(fast=5, full=15, nightly=60))
@given(name=st.sampled_from(sorted(PRESETS)), depth=st.integers(2, 80))
def test_every_preset_in_a_file(name: str, depth: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.yaml"
        write_schedule(PRESETS[name](depth), path)
        assert read_schedule(path) == PRESETS[name](depth)


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "hand.yaml"
    path.write_text(
        "# a comment\nname: by hand\ndepth: 12\nphases:\n"
        "  - name: top\n    from: 0\n    to: 0.25\n    trains: 8-11\n    embedding: no\n    scale: {3 5: 0.9, 7: 0.5}\n"
        "  - name: rest\n    from: 0.25\n    to: 1\n    trains: all\n    copies: {8-11: 0-3}\n    drop: [0, 0.5]\n"
    )
    top, rest = read_schedule(path).phases
    assert (top.trains, top.embedding, top.scale) == ((8, 9, 10, 11), False, ((3, 0.9), (5, 0.9), (7, 0.5)))
    assert rest.copies == ((8, 0), (9, 1), (10, 2), (11, 3))
    assert rest.drop == (0, 0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a schedule is written as keys and values"),
        ("a: [", "is not YAML"),
        (GOOD.replace("share: 0.5, trains: 0-1", "share: 0.4, trains: 0-1"), "sum to 0.9"),
        (GOOD.replace("0-1", "0-4"), "phase a: trains names layer 4"),
        (GOOD.replace("0-1", "0-x"), "phase a: trains: "),
        (GOOD.replace("trains: all", "trian: all"), "phase b has the unknown key 'trian'"),
        (GOOD.replace("name: a,", "name: a, name: c,"), "has the key name twice, the second time in line 4"),
        (GOOD.replace("name: by hand", "name: !!python/object/apply:os.getcwd []"), "uses the tag .*os.getcwd in line"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(PlanError, match=message) as refused:
        read_schedule(path)
    assert str(refused.value).startswith(str(path))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no such file; a schedule is a YAML file or one of uniform, published"):
        read_schedule(tmp_path / "none.yaml")
    with pytest.raises(PlanError, match="is a folder, not a file"):
        read_schedule(tmp_path)
    binary = tmp_path / "model.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(PlanError, match="is not UTF-8 text"):
        read_schedule(binary)


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"none/schedule.yaml: the schedule cannot be written"):
        write_schedule(PRESETS["uniform"](3), tmp_path / "none" / "schedule.yaml")
