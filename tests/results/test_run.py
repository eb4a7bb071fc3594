"""Run directories: one writer, resumable after `kill -9`, never mixed with another run."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from apart import Watch, apart
from layerwise.errors import RunError
from layerwise.results.rows import Loss
from layerwise.results.run import Run, write_whole
from results.samples import LOSS, MANIFEST

PLANS, DOCUMENTS, WINDOWS = 40, 25, 3


def write_rows(folder: Path) -> None:
    with Run.resume_or_create(folder, MANIFEST) as run, (folder / "computed.log").open("a") as log:
        for document in range(DOCUMENTS):
            windows = range(WINDOWS)
            done = frozenset.intersection(*(run.store.finished("prose", f"d{document}", window) for window in windows))
            for plan in range(PLANS):
                if f"0-{plan}" in done:
                    continue
                name, hits = f"d{document}", plan % 7
                run.store.add_losses(
                    [
                        Loss(f"0-{plan}", "prose", name, window, 1 / (1 + plan + window), 7 + document, hits)
                        for window in windows
                    ]
                )
                print(document, plan, file=log, flush=True)


HOLDER = """
import sys
from pathlib import Path
from layerwise.results import Manifest, Run

manifest = Manifest("demo", None, "w1", "float32", "cpu", "texts", "c1", 3, 90, 64, ("skip", "swap"), ("prose",), 7)
with Run.create(Path(sys.argv[1]), manifest):
    print("ready", flush=True)
    sys.stdin.read()
"""


def rows_of(folder: Path) -> list[Loss]:
    with Run.open(folder) as run:
        return list(run.store.losses())


@pytest.mark.slow
def test_a_run_killed_twenty_times_resumes_to_the_same_rows(tmp_path: Path) -> None:
    chance = random.Random(0)
    killed = tmp_path / "killed"
    grown = []
    for _ in range(20):
        ended = apart(write_rows, killed, watch=Watch(killed, strike=chance.randrange(20, 350)))
        assert ended.code == -signal.SIGKILL, ended.err
        with Run.open(killed) as run:
            grown.append(run.store.count_losses())
    for folder in (killed, tmp_path / "whole"):
        write_rows(folder)
    assert 10 < len(set(grown) - {0}) < PLANS * DOCUMENTS * WINDOWS
    assert grown == sorted(grown)
    assert all(count % WINDOWS == 0 for count in grown), "a batch is there whole or not at all"
    assert rows_of(killed) == rows_of(tmp_path / "whole")
    assert len(rows_of(killed)) == PLANS * DOCUMENTS * WINDOWS
    # A batch is logged once stored: a second line means that it was computed again.
    assert max(Counter((killed / "computed.log").read_text().splitlines()).values()) == 1
    with Run.open(killed) as run:
        ends = [session.ended for session in run.store.sessions()]
    assert [end is None for end in ends] == [True] * 20 + [False]


def test_a_second_writer_is_refused_with_the_process_id(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "ready\n"
        for attempt in (Run.resume_or_create, Run.create):
            with pytest.raises(RunError, match=f"in use: process {holder.pid} is writing to it"):
                attempt(tmp_path / "run", MANIFEST)
        assert rows_of(tmp_path / "run") == []
        holder.kill()
    with Run.resume_or_create(tmp_path / "run", MANIFEST) as run:
        assert run.store.sessions()[-1].pid == os.getpid()


def test_a_process_cannot_open_its_run_twice(tmp_path: Path) -> None:
    with Run.create(tmp_path, MANIFEST), pytest.raises(RunError, match=f"process {os.getpid()} "):
        Run.resume_or_create(tmp_path, MANIFEST)


def test_runs_can_be_created_resumed_and_opened(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    with Run.create(folder, MANIFEST) as run:
        run.store.add_losses([LOSS])
        assert run.changes == ()
        assert run.report == folder / "report.html"
    later = replace(MANIFEST, command=("again",), versions={**MANIFEST.versions, "torch": "0.1"}, model="renamed")
    with Run.resume_or_create(folder, later) as run:
        assert run.manifest == MANIFEST
        assert run.changes == (f"torch was {MANIFEST.versions['torch']} when this run began and is now 0.1",)
        assert run.store.finished("prose", "a.txt", 0) == {"0-3"}
        assert run.store.sessions()[-1].command == ("again",)
        assert run.store.sessions()[-1].versions["torch"] == "0.1"
    with Run.open(str(folder)) as run:
        assert run.manifest == MANIFEST
        assert list(run.store.losses()) == [LOSS]


def test_overwrite_discards_the_rows(tmp_path: Path) -> None:
    with Run.create(tmp_path, MANIFEST) as run:
        run.store.add_losses([LOSS])
    other = replace(MANIFEST, weight_hash="w2")
    with Run.create(tmp_path, other, overwrite=True) as run:
        assert run.store.count_losses() == 0
    with Run.open(tmp_path) as run:
        assert run.manifest == other


def test_rows_without_a_manifest_are_refused(tmp_path: Path) -> None:
    with Run.create(tmp_path, MANIFEST) as run:
        run.store.add_losses([LOSS])
    content = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(RunError, match=r"rows without a manifest\.json"):
        Run.resume_or_create(tmp_path, MANIFEST)
    (tmp_path / "manifest.json").write_bytes(content)
    assert rows_of(tmp_path) == [LOSS]


def test_a_run_without_rows_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(MANIFEST.to_json())
    with pytest.raises(RunError, match="has no rows"):
        Run.open(tmp_path)
    with Run.resume_or_create(tmp_path, MANIFEST) as run:
        assert run.store.count_losses() == 0


def test_a_missing_run_is_reported_with_runs_nearby(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="Pass the run directory of a verb such as `layerwise sweep`"):
        Run.open(tmp_path / "nothing")
    Run.create(tmp_path / "runs" / "demo-1", MANIFEST).close()
    for wrong in (tmp_path / "runs", tmp_path / "runs" / "demo-2"):
        with pytest.raises(RunError, match=r"is not a run.*Runs nearby: .*runs/demo-1\."):
            Run.open(wrong)
    with pytest.raises(RunError, match="is not a run"):
        Run.open(tmp_path / "runs" / "demo-1" / "run.sqlite")


def test_a_refusal_releases_the_lock(tmp_path: Path) -> None:
    Run.create(tmp_path, MANIFEST).close()
    for _ in range(2):
        with pytest.raises(RunError, match="already contains a run"):
            Run.create(tmp_path, MANIFEST)
    with Run.resume_or_create(tmp_path, MANIFEST) as run:
        run.close()


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with pytest.raises(RunError, match=r"Cannot lock the run directory .* \(Operation not supported\)"):
        Run.create(tmp_path, MANIFEST)


def test_files_are_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "manifest.json"
    write_whole(path, b"old")

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(RunError, match="is full"):
        Run.create(tmp_path / "run", MANIFEST)


@pytest.mark.parametrize("target", [".", "/", "pipe", "full", "file/report.html", "nowhere/report.html"])
def test_only_regular_files_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("file").write_text("a letter")
    Path("full").symlink_to("/dev/full")  # and never the device itself, which a wrong answer would replace
    kinds = {path: path.stat().st_mode for path in (Path(target), Path("pipe"), Path("file")) if path.exists()}
    with pytest.raises(OSError, match=r"."):
        write_whole(Path(target), b"content")
    assert {path: path.stat().st_mode for path in kinds} == kinds
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "pipe"]
    assert Path("full").is_symlink()
