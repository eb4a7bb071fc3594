"""Folders are written atomically, with the user's default file modes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO
from unittest.mock import patch

import pytest

from apart import Watch, apart
from layerwise.checkpoint import save, stream, tensor_files
from layerwise.checkpoint.folder import draft_of
from layerwise.checkpoint.stored_config import visit_config
from layerwise.stack import load


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), pytest.param(0o077, 0o600, marks=pytest.mark.slow)])
def test_files_have_the_modes_of_the_user(home: Path, tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        save(home, "0 1", tmp_path / "streamed")
        save(load(home), "0 1", tmp_path / "memory")
    finally:
        os.umask(before)
    for name in ("streamed", "memory"):
        assert modes(tmp_path / name) == {mode}
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o777 & ~mask


def test_a_draft_of_a_process_that_is_no_more_is_removed(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    abandoned, alive, old, other = (
        tmp_path / name
        for name in (
            f".m-{int(ended.stdout)}-1234",
            f".m-{os.getpid()}-1234",
            f".m-{int(ended.stdout)}-1234-old",
            f".more-{int(ended.stdout)}-1234",
        )
    )
    for folder in (abandoned, alive, old, other):
        (folder / "deep").mkdir(parents=True)
    with draft_of(tmp_path / "m") as draft:
        (draft / "config.json").write_text("{}")
        assert not abandoned.exists()
        assert old.exists()  # what a user had before, while nothing has taken its name
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["m", alive.name, old.name, other.name])


def save_in_pieces(home: Path, folder: Path) -> None:
    copied = tensor_files._copied_by_kernel

    def copied_in_pieces(source: BinaryIO, begin: int, target: BinaryIO, size: int) -> int | None:
        sys.audit("apart.write", "a piece")
        return copied(source, begin, target, min(size, 4096))

    with (
        patch.object(tensor_files, "_copied_by_kernel", copied_in_pieces),
        patch.object(stream, "without_torch", visit_config),
    ):
        save(home, "0-5 5", folder, prove=False)


@pytest.mark.slow
def test_a_killed_process_leaves_no_folder_or_a_whole_one(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "there" / "m"
    whole = apart(save_in_pieces, home, tmp_path / "whole" / "m", watch=Watch(tmp_path / "whole"))
    assert whole.code == 0, whole.err
    assert whole.writes.count("a piece") > 20
    for strike in (*range(0, len(whole.writes) - 1, len(whole.writes) // 10), len(whole.writes) - 1):
        killed = apart(save_in_pieces, home, folder, watch=Watch(folder.parent, strike))
        assert killed.code == -signal.SIGKILL, killed.err
        assert not folder.exists() or load(folder).depth == 7
        shutil.rmtree(folder.parent, ignore_errors=True)  # there is none where the first write did not happen
    assert load(tmp_path / "whole" / "m").depth == 7
