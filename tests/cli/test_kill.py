"""`kill -9` at any moment costs nothing: the same command goes on, and ends with the rows of a run left in peace.

The real command runs in a process of its own and is killed at moments drawn over its whole life: while it starts, at a
drawn share of its rows, and while it derives and writes what follows them. Then the same command is run to its end.
"""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from cli.command import layerwise, start
from cli.conftest import save_llama, save_texts
from layerwise.results import Loss, Run, Score

Cell = tuple[int, int, int]
Command = tuple[str | Path, ...]

# Of 20 kills: before the first row, among the rows, after the last.
SHARES = (("start", 4), ("rows", 11), ("end", 5))
# Figures of the process and not of the plans: how long it took, and how many states it held at most.
OF_THE_PROCESS = {"seconds", "seconds_in_layers", "seconds_in_heads", "states_live"}


@dataclass(frozen=True)
class Moment:
    """When to kill: at a share of the time before the first row, of the rows, or of the time after the last row."""

    phase: Literal["start", "rows", "end"]
    share: float


@dataclass(frozen=True)
class Life:
    """An uninterrupted run: when its first and its last row came, when it ended (seconds), and what it left."""

    first: float
    last: float
    end: float
    losses: list[Loss]
    scores: list[Score]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A sweep of a few seconds: 6 layers, 40 plans, many small batches."""
    folder = tmp_path_factory.mktemp("inputs")
    model = save_llama(folder / "model", depth=6)
    texts = save_texts(folder / "texts", count=12, characters=200)
    return ("sweep", model, "--text", texts, "--max-length", "60", "--batch-tokens", "240")


@pytest.mark.slow
def test_two_kills(command: Command, tmp_path: Path) -> None:
    """The quicker version: one folder killed twice, among its rows and after them, the rest in this process."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert layerwise(*command, "--run", whole).code == 0
    total = len(losses_of(whole))
    kept: dict[Cell, int] = {}
    for moment in (Moment("rows", 0.4), Moment("rows", 0.9)):
        process = start(*command, "--run", killed)
        await_rows(process, killed, round(moment.share * total))
        assert killed_now(process)
        found = sessions_of_rows(killed, tmp_path / "copy")
        assert kept.items() <= found.items()
        kept = found
    assert len(Counter(kept.values())) == 2
    ended = layerwise(*command, "--run", killed)
    assert ended.code == 0
    assert f"resumed: {len(kept):,} rows are stored already" in ended.err
    assert kept.items() <= sessions_of_rows(killed, tmp_path / "copy").items()
    assert losses_of(killed) == losses_of(whole)
    assert scores_of(killed) == scores_of(whole)


@pytest.mark.slow
@pytest.mark.nightly
def test_twenty_kills(command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    life = uninterrupted(command, tmp_path / "whole")
    counts: Counter[str] = Counter()
    for number, moment in enumerate(moments(random.Random(20))):
        folder = tmp_path / f"killed-{number}"
        process = start(*command, "--run", folder)
        await_moment(process, folder, moment, life)
        counts["killed" if killed_now(process) else "had ended"] += 1
        kept = sessions_of_rows(folder, tmp_path / "copy")
        counts[phase_of(kept, folder, life)] += 1
        resume(command, folder)
        after = sessions_of_rows(folder, tmp_path / "copy")
        assert kept.items() <= after.items(), "a row that was there was computed again"
        assert losses_of(folder) == life.losses
        assert scores_of(folder) == life.scores
        assert (folder / "report.html").read_text().endswith("</html>\n")
        counts["rows kept"] += len(kept)
        counts["rows computed after the kill"] += len(after) - len(kept)
    with capsys.disabled():
        print(f"\n{', '.join(f'{count:,} {what}' for what, count in sorted(counts.items()))}; 0 rows computed again")
    assert counts["killed"] >= 16
    assert counts["before the first row"] >= 2
    assert counts["among the rows"] >= 8
    assert counts["after the last row"] >= 2


def moments(chance: random.Random) -> Iterator[Moment]:
    """Twenty moments over a process's life."""
    for phase, count in SHARES:
        for _ in range(count):
            yield Moment(phase, chance.random())  # type: ignore[arg-type]


def uninterrupted(command: Command, folder: Path) -> Life:
    """Run the command in peace and note when what happened."""
    begin = time.perf_counter()
    process = start(*command, "--run", folder)
    first = last = 0.0
    rows = 0
    while process.poll() is None:
        seen = count_rows(folder)
        if seen > rows:
            rows, last = seen, time.perf_counter() - begin
            first = first or last
        time.sleep(0.01)
    _, err = process.communicate()
    assert process.returncode == 0, err
    return Life(first, last, time.perf_counter() - begin, losses_of(folder), scores_of(folder))


def await_moment(process: subprocess.Popen[str], folder: Path, moment: Moment, life: Life) -> None:
    """Wait until the moment has come, or the process has ended."""
    if moment.phase == "start":
        sleep_beside(process, moment.share * life.first)
        return
    await_rows(process, folder, round(moment.share * len(life.losses)) if moment.phase == "rows" else len(life.losses))
    if moment.phase == "end":
        sleep_beside(process, moment.share * (life.end - life.last))


def await_rows(process: subprocess.Popen[str], folder: Path, rows: int) -> None:
    """Wait until the run holds so many rows, or the process has ended."""
    while process.poll() is None and count_rows(folder) < rows:
        time.sleep(0.002)


def sleep_beside(process: subprocess.Popen[str], seconds: float) -> None:
    """Wait so long, or until the process has ended."""
    end = time.perf_counter() + seconds
    while process.poll() is None and time.perf_counter() < end:
        time.sleep(0.002)


def killed_now(process: subprocess.Popen[str]) -> bool:
    """Send SIGKILL; whether it came before the end."""
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def resume(command: Command, folder: Path) -> None:
    """Run the same command to its end."""
    process = start(*command, "--run", folder)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "Traceback" not in err


def phase_of(kept: dict[Cell, int], folder: Path, life: Life) -> str:
    if not kept:
        return "before the first row"
    return "among the rows" if len(kept) < len(life.losses) else "after the last row"


def count_rows(folder: Path) -> int:
    """How many rows a run has, read while it is written; none while there is no run."""
    database = folder / "run.sqlite"
    if not database.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM losses").fetchone()[0])
    except sqlite3.OperationalError:  # between the making of the file and of its tables
        return 0


def sessions_of_rows(folder: Path, copy: Path) -> dict[Cell, int]:
    """Which process wrote each row, read from a copy, so that the test does not repair what the kill left."""
    shutil.rmtree(copy, ignore_errors=True)
    if not (folder / "run.sqlite").exists():
        return {}
    shutil.copytree(folder, copy)
    with closing(sqlite3.connect(copy / "run.sqlite")) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'losses'").fetchone():
            return {}
        rows = connection.execute("SELECT document, window, plan, session FROM losses")
        return {(document, window, plan): session for document, window, plan, session in rows}


def losses_of(folder: Path) -> list[Loss]:
    with Run.open(folder) as run:
        return list(run.store.losses())


def scores_of(folder: Path) -> list[Score]:
    """All scores but the figures of the process."""
    with Run.open(folder) as run:
        return [score for score in run.store.scores() if score.metric not in OF_THE_PROCESS]
