"""Every experiment goes on after any kill to the rows of a run that nothing disturbed."""

from __future__ import annotations

import random
import signal
from functools import cache
from pathlib import Path

import pytest

from apart import Watch, apart
from experiments.kinds import KINDS, carry_out, rows
from layerwise.experiments.catalogue import CATALOGUE, configuration
from layerwise.experiments.runner import COMPLETE
from tier import by_tier

KILLS = by_tier(fast=1, full=2, nightly=50)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kinds")


@cache
def whole(verb: str, folders: Path) -> tuple[list[object], tuple[str, ...]]:
    """The rows of a run that nothing disturbed, and what it wrote."""
    run = folders / verb / "run"
    run.parent.mkdir()
    ended = apart(carry_out, verb, run, watch=Watch(run))
    assert ended.code == 0, ended.err
    return rows(run), ended.writes


def test_every_experiment_is_tried() -> None:
    verbs = [verb for group in CATALOGUE.values() for verb in group]
    assert {verb for verb in verbs if getattr(configuration(verb), "RUNS", "")} == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS))
@pytest.mark.parametrize("verb", KINDS)
def test_a_run_that_was_killed_goes_on_to_the_same_rows(
    verb: str, number: int, folders: Path, tmp_path: Path
) -> None:  # fmt: skip
    expected, writes = whole(verb, folders)
    strike = random.Random(f"{verb}/{number}").randrange(len(writes))
    run = tmp_path / "run"
    killed = apart(carry_out, verb, run, watch=Watch(run, strike))
    assert killed.code == -signal.SIGKILL, killed.err
    again = apart(carry_out, verb, run)
    assert again.code == 0, again.err
    assert rows(run) == expected, f"killed at {writes[strike]}"


@pytest.mark.slow
@pytest.mark.parametrize("verb", KINDS)
def test_a_complete_run_computes_nothing_again(verb: str, folders: Path) -> None:
    expected, _ = whole(verb, folders)
    run = folders / verb / "run"
    again = apart(carry_out, verb, run, watch=Watch(run))
    assert again.code == 0, again.err
    assert rows(run) == expected
    # What may change from outside, such as by a library that is installed, is derived anew from what is kept.
    if (run / COMPLETE).exists():
        assert not [each for each in again.writes if each.startswith(("INSERT INTO losses", "INSERT INTO scores"))]
