"""Every experiment goes on after any kill to the rows of a run that nothing disturbed."""

import random
import shutil
import signal
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from apart import Watch, apart
from layerwise.catalogue import VERBS as ALL
from layerwise.runner.study import COMPLETE
from studies.kinds import KINDS, carry_out, plant, rows
from tier import by_tier

TWICE = {"time", "search", "heal", "train robust", "robustness merge", "sweep", "evaluate"}
"""Verbs whose runs are killed a second time after they resume."""

VERBS = [pytest.param(verb, marks=pytest.mark.nightly if verb.endswith("-study") else ()) for verb in KINDS]
"""Studies are many trainings of `train elc` or `train growth`, which CI kills; at night they are killed themselves."""

DERIVED = ("INSERT INTO losses", "INSERT INTO scores", "open ")
"""Rows and model files that a complete run does not write again."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kinds")


@cache
def whole(verb: str, folders: Path) -> tuple[list[object], tuple[str, ...]]:
    run = folders / verb / "run"
    run.parent.mkdir(exist_ok=True)
    ended = apart(carry_out, verb, run, watch=Watch(run))
    assert ended.code == 0, ended.err
    return rows(run), ended.writes


def sessions(run: Path, copy: Path) -> dict[tuple[object, ...], int]:
    shutil.rmtree(copy, ignore_errors=True)
    if not (run / "run.sqlite").exists():
        return {}
    shutil.copytree(run, copy)
    with closing(sqlite3.connect(copy / "run.sqlite")) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'losses'").fetchone():
            return {}
        return {tuple(key): session for *key, session in connection.execute(LOSSES)}


LOSSES = "SELECT task, document, window, plan, session FROM losses"


def test_every_experiment_is_tried() -> None:
    kept = {verb.name for verb in ALL.values() if verb.keeps_run}
    assert kept == set(KINDS)


def test_every_clock_that_is_planted_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch.setattr)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(by_tier(fast=1, nightly=25)))
@pytest.mark.parametrize("verb", VERBS)
def test_a_run_that_was_killed_goes_on_to_the_same_rows(verb: str, number: int, folders: Path, tmp_path: Path) -> None:
    """Killed at a drawn write, and again after it resumes: no loss is computed twice."""
    expected, writes = whole(verb, folders)
    chance, run = random.Random(f"{verb}/{number}"), tmp_path / "run"
    strikes = [chance.randrange(len(writes)) for _ in range(2 if verb in TWICE else 1)]
    kept: dict[tuple[object, ...], int] = {}
    for turn, strike in enumerate(strikes):
        ended = apart(carry_out, verb, run, watch=Watch(run, strike))
        assert ended.code == -signal.SIGKILL or (ended.code == 0 and turn > 0), ended.err
        before, kept = kept, sessions(run, tmp_path / "copy")
        assert before.items() <= kept.items()
    again = apart(carry_out, verb, run)
    assert again.code == 0, again.err
    assert rows(run) == expected, f"killed at {writes[strikes[0]]}, and then at {strikes[1:]}"
    assert kept.items() <= sessions(run, tmp_path / "copy").items()
    assert (run / "report.html").read_text().endswith("</html>\n")


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_complete_run_computes_nothing_again(verb: str, folders: Path) -> None:
    expected, _ = whole(verb, folders)
    run = folders / verb / "run"
    again = apart(carry_out, verb, run, watch=Watch(run))
    assert again.code == 0, again.err
    assert rows(run) == expected
    # Values that may change from outside, such as library versions, are derived again from the stored rows.
    if (run / COMPLETE).exists():
        written = [each for each in again.writes if each.startswith(DERIVED)]
        assert not [each for each in written if not each.startswith("open ") or "/model/" in each]
