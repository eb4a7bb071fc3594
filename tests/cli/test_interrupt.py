"""Ctrl-C ends a sweep with code 130, one sentence and every row it had, wherever it hits, also while saving."""

import os
import random
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from apart import apart
from cli.command import layerwise
from layerwise.cli.app import main
from layerwise.results import Loss, Run, Store
from layerwise.runner import summary

ARGUMENTS = ("--families", "leave_one_out", "--max-length", "20", "--batch-tokens", "40")


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    with own_interrupt():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


@pytest.fixture
def command(model: Path, texts: Path, tmp_path: Path) -> tuple[str | Path, ...]:
    return ("sweep", model, "--text", texts, "--run", tmp_path / "run", *ARGUMENTS)


@pytest.fixture(scope="module")
def whole(model: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Loss]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert layerwise("sweep", model, "--text", texts, "--run", folder, *ARGUMENTS).code == 0
    return rows(folder)


def rows(folder: Path) -> list[Loss]:
    with Run.open(folder) as run:
        return list(run.store.losses())


@pytest.mark.parametrize("calls", [1, 0])
def test_interrupted_sweeps_can_be_reported(
    command: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    left = calls
    add = Store.add_losses

    def stopping(store: Store, rows: list[Loss]) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        add(store, rows)

    with monkeypatch.context() as stopped:
        stopped.setattr(Store, "add_losses", stopping)
        with own_interrupt():
            assert layerwise(*command).code == 130
    ended = layerwise("report", tmp_path / "run")
    if not calls:
        assert (ended.code, ended.out) == (2, "")
        assert "has no rows yet" in ended.err
        assert not tmp_path.joinpath("run", "report.html").exists()
        return
    assert ended.code == 0, ended.err
    assert "0-3" in {row.plan for row in rows(tmp_path / "run")}
    with Run.open(tmp_path / "run") as run:
        found = summary.report_data(run)
    assert {score.plan for score in found.scores if score.metric == "nll"} >= {"0-3"}


def interrupt_at_the_second_batch(*arguments: str) -> None:
    add, calls = Store.add_losses, []

    def struck(store: Store, rows: list[Loss]) -> None:
        calls.append(rows)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        add(store, rows)

    with patch.object(Store, "add_losses", struck), patch.object(sys, "argv", ["layerwise", *arguments]):
        main()


def interrupt_while_loading(*arguments: str) -> None:
    write = sys.stderr.write

    def struck(text: str) -> int:
        if text.startswith("loading "):
            os.kill(os.getpid(), signal.SIGINT)
        return write(text)

    with patch.object(sys.stderr, "write", struck), patch.object(sys, "argv", ["layerwise", *arguments]):
        main()


@pytest.mark.slow
def test_ctrl_c_keeps_rows_and_the_run_resumes(
    command: tuple[str | Path, ...], whole: list[Loss], tmp_path: Path
) -> None:
    ended = apart(interrupt_at_the_second_batch, *map(str, command))
    assert ended.code == 130, ended.err
    assert ended.out == ""
    assert ended.err.splitlines()[-1].endswith("are stored; to resume, run the same command again")
    assert "Traceback" not in ended.err
    kept = rows(tmp_path / "run")
    assert kept
    assert layerwise(*command).code == 0
    assert set(kept) < set(whole)
    assert rows(tmp_path / "run") == whole


@pytest.mark.slow
def test_ctrl_c_while_loading_leaves_no_run(command: tuple[str | Path, ...], tmp_path: Path) -> None:
    ended = apart(interrupt_while_loading, *map(str, command))
    assert ended.code == 130, ended.err
    assert ended.err == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_ctrl_c_while_saving_leaves_no_checkpoint(
    command: tuple[str | Path, ...], whole: list[Loss], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    strike = chance.randrange(1, len(whole))
    add = Store._add_loss
    added = 0

    def struck(store: Store, connection: sqlite3.Connection, row: Loss, session: int) -> None:
        nonlocal added
        add(store, connection, row, session)
        added += 1
        if added == strike:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched, own_interrupt():
        patched.setattr(Store, "_add_loss", struck)
        ended = layerwise(*command)
    assert ended.code == 130
    kept = rows(tmp_path / "run")
    assert f"stopped: {len(kept)} rows, finished models and checkpoints are stored" in ended.err
    assert len(kept) < strike
    assert layerwise(*command).code == 0
    assert rows(tmp_path / "run") == whole


@contextmanager
def own_interrupt() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
