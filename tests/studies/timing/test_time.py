"""`layerwise time`: rows, report, resumption and errors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import layerwise as package
from apart import Ended
from cli.command import layerwise, refused
from layerwise.errors import OptionError
from layerwise.measure.cost import pass_time
from layerwise.measure.cost.pass_time import MIN_ROUNDS, TimedPass
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.studies.time import steps as timing

PLANS = ("--plan", "0-3", "--plan", "0 (1|2) 3")
SHORT = ("--context", "6", "--rounds", str(MIN_ROUNDS))


@pytest.fixture(scope="module")
def clock() -> Iterator[list[int]]:
    readings: list[int] = []

    def seconds(self: TimedPass) -> float:
        running = self.stack.running
        readings.append(len(running.steps()))
        return len(running.steps()) / 1000

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TimedPass, "seconds", seconds)
        yield readings


@pytest.fixture
def steps(clock: list[int]) -> list[int]:
    clock.clear()
    return clock


@pytest.fixture(scope="module")
def command(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str | Path, ...]:
    run = tmp_path_factory.mktemp("runs") / "run"
    return ("time", model, *PLANS, "--plan", "0 1 3", *SHORT, "--run", run)


@pytest.fixture(scope="module")
def timed(command: tuple[str | Path, ...], clock: list[int]) -> tuple[Path, Ended]:
    ended = layerwise(*command)
    assert ended.code == 0, ended.err
    return Path(command[-1]), ended


def rows(folder: Path, measure: str = "time") -> list[Score]:
    with Run.open(folder) as run:
        return run.store.scores(measure)


def test_timing_writes_rows_and_a_report(timed: tuple[Path, Ended]) -> None:
    folder, ended = timed
    stored = rows(folder)
    assert {row.condition for row in stored} == {f"{phase}, batch 1, context 6" for phase in ("prefill", "decode")}
    assert list(dict.fromkeys(row.plan for row in stored)) == ["0-3", "0 (1|2) 3", "0 1 3"]
    values = {(row.plan, row.metric): row.value for row in stored}
    assert values["0 1 3", "ms"] == pytest.approx(3)
    assert values["0 1 3", "ratio"] == pytest.approx(3 / 4)
    assert "0 1 3" in ended.out
    assert "0.750 [0.750, 0.750]" in ended.out
    with Run.open(folder) as run:
        assert run.manifest.experiment["experiment"] == "time"
        assert run.manifest.numerics["machine"]
    page = (folder / "report.html").read_text()
    assert "Milliseconds of a forward pass" in page
    assert "0 (1|2) 3" in page


def test_rounds_are_added_without_repeating(model: Path, tmp_path: Path, steps: list[int]) -> None:
    command = ("time", model, *PLANS, "--context", "6", "--run", tmp_path / "run", "--rounds")
    layerwise(*command, "6")
    first = len(steps)
    layerwise(*command, "6")
    assert len(steps) == first
    layerwise(*command, "9")
    of_a_round = 2 * 2 * pass_time.PASSES
    # Three more rounds, and one in which the session warms up.
    assert len(steps) - first == 4 * of_a_round
    assert {row.documents for row in rows(tmp_path / "run")} == {9}
    assert len(rows(tmp_path / "run", "time_round")) == 9 * 2 * 2


@pytest.mark.usefixtures("timed")
def test_times_of_another_machine_are_rejected(
    command: tuple[str | Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "read_hardware", lambda device: {"processor": "another"})
    assert "its machine is" in refused(*command)


def test_invalid_plans_are_rejected(model: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^at least one plan is required. Pass it as plans, for example"):
        package.time("demo")
    assert "at least one plan is required. Pass it as --plan, for example" in refused("time", "demo")
    assert "visits layer 4, but the model has 4 layers" in refused(
        "time", model, "--plan", "0-7", "--run", tmp_path / "run"
    )
    assert not (tmp_path / "run").exists()
    assert "that read tokens can be timed, got demo-vit" in refused(
        "time", "demo-vit", "--plan", "0-3", "--run", tmp_path
    )
