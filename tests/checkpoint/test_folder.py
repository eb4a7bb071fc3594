"""A folder appears whole or not at all, with the modes of the user's other files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import tiny_llama
from layerwise.checkpoint import save
from layerwise.checkpoint.folder import draft_of
from layerwise.stack import load


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), pytest.param(0o077, 0o600, marks=pytest.mark.slow)])
def test_files_have_the_modes_of_the_user(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        tiny_llama().save_pretrained(tmp_path / "home")
        save(tmp_path / "home", "0 1", tmp_path / "streamed")
        save(load(tmp_path / "home"), "0 1", tmp_path / "memory")
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
            f".m-{int(ended.stdout)}-1234", f".m-{os.getpid()}-1234", f".m-{int(ended.stdout)}-1234-old",
            f".more-{int(ended.stdout)}-1234",
        )
    )  # fmt: skip
    for folder in (abandoned, alive, old, other):
        (folder / "deep").mkdir(parents=True)
    with draft_of(tmp_path / "m") as draft:
        (draft / "config.json").write_text("{}")
        assert not abandoned.exists()
        assert old.exists()  # what a user had before, while nothing has taken its name
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["m", alive.name, old.name, other.name])


SAVING = """
import sys
from layerwise.checkpoint import save, tensor_files
copy = tensor_files._copied_by_kernel
def slowly(source, begin, target, size):
    import time
    time.sleep(0.002)
    return copy(source, begin, target, min(size, 4096))
tensor_files._copied_by_kernel = slowly
print("begins", flush=True)
save(sys.argv[1], "0-5 5", sys.argv[2], prove=False)
"""


@pytest.mark.slow
def test_a_killed_process_leaves_no_folder_or_a_whole_one(tmp_path: Path) -> None:
    """The figure of 20 kills at random moments is that of `benchmarks/save_kill.py`; here are five chosen ones."""
    tiny_llama().save_pretrained(tmp_path / "home")
    for number, seconds in enumerate((0.0, 0.8, 1.6, 2.4, 60.0)):
        folder = tmp_path / f"m{number}"
        command = [sys.executable, "-c", SAVING, str(tmp_path / "home"), str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            deadline = time.monotonic() + seconds
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
        assert not folder.exists() or load(folder).depth == 7
    assert load(folder).depth == 7
