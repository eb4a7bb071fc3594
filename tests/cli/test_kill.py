"""`kill -9` at any write costs nothing: the same command goes on, and ends with the rows of a run left in peace.

The real command kills its own process in place of a drawn write: before its first row, among its rows, and while it
derives and writes what follows them. Then the same command is run to its end.
"""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from apart import Watch, run_command
from cli.conftest import save_llama, save_texts
from layerwise.results import Loss, Run, Score

Cell = tuple[int, int, int]
Command = tuple[str | Path, ...]

ROW = "INSERT INTO losses"
# Figures of the process and not of the plans: how long it took, and how many states it held at most.
OF_THE_PROCESS = {"seconds", "seconds_in_layers", "seconds_in_heads", "states_live"}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A sweep of a few seconds: 6 layers, 40 plans, many small batches."""
    folder = tmp_path_factory.mktemp("inputs")
    model = save_llama(folder / "model", depth=6)
    texts = save_texts(folder / "texts", count=12, characters=200)
    return ("sweep", model, "--text", texts, "--max-length", "60", "--batch-tokens", "240")


@pytest.mark.slow
def test_two_kills(command: Command, tmp_path: Path) -> None:
    """One folder killed twice among its rows."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    writes = uninterrupted(command, whole)
    kept: dict[Cell, int] = {}
    for _ in range(2):
        ended = run_command(*command, "--run", killed, watch=Watch(killed, writes.count(ROW) // 3, of=ROW))
        assert ended.code == -signal.SIGKILL, ended.err
        found = sessions_of_rows(killed, tmp_path / "copy")
        assert kept.items() <= found.items()
        kept = found
    assert len(Counter(kept.values())) == 2
    ended = run_command(*command, "--run", killed)
    assert ended.code == 0, ended.err
    assert f"resumed: {len(kept):,} rows are stored already" in ended.err
    assert kept.items() <= sessions_of_rows(killed, tmp_path / "copy").items()
    assert losses_of(killed) == losses_of(whole)
    assert scores_of(killed) == scores_of(whole)


@pytest.mark.nightly
def test_twenty_kills(command: Command, tmp_path: Path) -> None:
    """Four before the first row, eleven among the rows and five after the last: where a run has its writes."""
    whole = tmp_path / "whole"
    writes = uninterrupted(command, whole)
    first, behind = writes.index(ROW), len(writes) - writes[::-1].index(ROW)
    chance = random.Random(20)
    strikes = [chance.randrange(*among) for among in 4 * [(0, first)] + 11 * [(first, behind)]]
    strikes += [chance.randrange(behind, len(writes)) for _ in range(5)]
    counts: Counter[str] = Counter()
    for number, strike in enumerate(strikes):
        folder = tmp_path / f"killed-{number}"
        ended = run_command(*command, "--run", folder, watch=Watch(folder, strike))
        assert ended.code == -signal.SIGKILL, ended.err
        kept = sessions_of_rows(folder, tmp_path / "copy")
        counts["some" if 0 < len(kept) < len(losses_of(whole)) else "all" if kept else "none"] += 1
        again = run_command(*command, "--run", folder)
        assert again.code == 0, again.err
        assert "Traceback" not in again.err
        after = sessions_of_rows(folder, tmp_path / "copy")
        assert kept.items() <= after.items(), "a row that was there was computed again"
        assert losses_of(folder) == losses_of(whole)
        assert scores_of(folder) == scores_of(whole)
        assert (folder / "report.html").read_text().endswith("</html>\n")
    assert counts["none"] >= 4
    assert counts["some"] >= 8
    assert counts["all"] >= 5


def uninterrupted(command: Command, folder: Path) -> list[str]:
    """Run the command in peace: its writes, a row of losses as `ROW`."""
    ended = run_command(*command, "--run", folder, watch=Watch(folder))
    assert ended.code == 0, ended.err
    return [ROW if write.startswith(ROW) else write for write in ended.writes]


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
