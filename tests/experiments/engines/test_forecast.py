"""A forecast adds up what work measures of itself, is held against what was taken, and leaves no trace in the rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import layerwise
from cli.conftest import own_model, texts
from experiments.growth.tiny_inputs import save_config
from experiments.outlines import outline_of
from experiments.test_runner import Recorder
from layerwise.errors import MeasureError
from layerwise.experiments.engines import forecast as module
from layerwise.experiments.engines import steps as work
from layerwise.experiments.engines.forecast import LIMIT, forecast
from layerwise.experiments.engines.steps import Completed, Outline, Steps, Unit, UnitSession, Work, WorkCost
from layerwise.experiments.experiment import Experiment, Inputs
from layerwise.experiments.option import configured
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.runner import describe, perform
from layerwise.experiments.sweep.config import Sweep
from layerwise.experiments.verbs import train_growth
from layerwise.results import Manifest, Run
from layerwise.results.rows import Score

__all__ = ["own_model", "texts"]


@pytest.fixture
def everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done is worth a forecast, which is measured in no time."""
    for name in ("SHORT", "CALL"):
        monkeypatch.setattr(work, name, 0.0)
    monkeypatch.setattr(module, "SHORT", 0.0)
    monkeypatch.setattr(module, "LIMIT", 0.0)


def test_costs_are_added_and_the_time_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("layerwise.experiments.engines.forecast.time.perf_counter", lambda: now)
    given: list[float] = []

    def measuring(takes: float, cost: WorkCost) -> Work:
        def measure(seconds: float) -> WorkCost:
            nonlocal now
            given.append(seconds)
            now += takes
            return cost

        return Work("piece", measure)

    expected = forecast([measuring(1.0, WorkCost(20.0, 5, 7)), measuring(4.0, WorkCost(30.0, 6, 9))])
    assert expected is not None
    assert (expected.seconds, expected.disk_bytes, expected.passing_bytes) == (50.0, 11, 9)
    assert expected.measured_seconds == 5.0
    assert given == [LIMIT / 2, LIMIT - 1.0], "what the first leaves is the second's"
    assert "this will take about 50 s" in str(expected)
    given.clear()
    assert forecast([measuring(3 * LIMIT, WorkCost(20.0)), measuring(0.0, WorkCost(30.0))]) is not None
    assert given == [LIMIT / 2, LIMIT / 2], "what the first takes too much is not taken from the second"
    assert forecast([measuring(0.1, WorkCost(work.SHORT - 1))]) is None
    assert forecast([]) is None


def test_what_has_no_time_is_named_and_the_rest_says_what_it_was_measured_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(module.os, "getloadavg", lambda: (7.25, 0.0, 0.0), raising=False)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    price: list[float] = []

    def losses(seconds: float) -> WorkCost:
        price.append(LIMIT + 0.01)
        return WorkCost(50.0, measured_on="1 of 9 batches")

    def never(seconds: float) -> WorkCost:
        raise AssertionError("it takes longer than its share")

    told: list[tuple[str, float]] = []
    works = [Work("losses", losses), Work("states", never, least=lambda: price[0])]
    expected = forecast(works, lambda label, share: told.append((label, share)))
    assert str(expected).startswith("this will take about 50 s; beside states, too long to be measured, ")
    assert str(expected).endswith(
        "measured in 0.0 s under a load of 7.2 on 2 processors (losses: 1 of 9 batches in 0.0 s)"
    )
    assert told == [("forecast: losses", 0.0), ("forecast: states", 0.5), ("forecast", 1.0)]


def test_a_first_time_has_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    now, takes = 0.0, iter([90.0, 4.0, 5.0])
    monkeypatch.setattr(work.time, "perf_counter", lambda: now)

    def once() -> float:
        nonlocal now
        now += next(takes)
        return 100.0

    cost = work.repeated(once, "of 100 batches")(0.0)
    assert (cost.seconds, cost.measured_on) == (400.0, "1 of 100 batches")


def test_a_sample_that_is_taken_again_counts_once() -> None:
    measure = work.sampled(lambda number: 1e9 if number < 5 else 0.0, "of 3 batches", different=3)
    assert measure(1e9).measured_on == "3 of 3 batches"


def test_the_generators_are_set_back() -> None:
    def measure(seconds: float) -> WorkCost:
        random.random(), np.random.rand(), torch.rand(1)
        return WorkCost(100.0)

    def states() -> tuple[Any, ...]:
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = states()
    assert forecast([Work("draws", measure)]) is not None
    assert states() == before


@dataclass(frozen=True, kw_only=True)
class Expected(Experiment):
    """An experiment that forecasts 50 seconds, and 100 bytes of memory for each step that is not stored."""

    VERB: ClassVar = "expected"

    def begin(self, reporter: Reporter, inputs: Inputs) -> Steps:
        manifest = Manifest("m", None, "w", "float32", "cpu", "c", "h", 8, 80, 10, ("expected",), (), 0)
        step = Step()
        yield Outline(manifest, lambda: ["a step"], ahead=(step,))
        yield from step
        return Completed()


class Step(Unit[None]):
    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        if run is None or not run.store.scores("effect"):
            yield Work("a step", lambda seconds: WorkCost(50.0))

    def carry_out(self, session: UnitSession) -> None:
        session.store.replace_scores("effect", [Score("effect", "x", 1.0, claim="0")])


def test_what_was_taken_is_stored_beside_the_forecast(tmp_path: Path) -> None:
    first, again = Recorder(), Recorder()
    config = Expected(run=tmp_path / "run")
    told: list[str] = []
    dry = Recorder()
    dry.progress = lambda label, share, seconds_left=None: told.append(label)  # type: ignore[method-assign]
    describe(config, dry)
    assert told == ["forecast: a step", "forecast"], "measuring is not silent"
    assert any(text.startswith("this will take about 50 s") for text in dry.results)
    perform(config, first)
    said = [text for text in first.logs if "forecast" in text or "this will take" in text]
    assert [text.split()[0] for text in said] == ["this", "took", "memory"]
    with Run.open(tmp_path / "run") as run:
        rows = {row.metric: row.value for row in run.store.scores("run") if row.part == "forecast"}
    assert rows["forecast_seconds"] == 50.0
    assert 0 <= rows["taken_seconds"] < 50
    assert rows["taken_memory_bytes"] > 1e7
    assert "forecast_seconds" in (tmp_path / "run" / "report.html").read_text().replace(" ", "_")
    perform(config, again)
    assert not any("this will take" in text for text in again.logs), "nothing is left"


def test_what_a_piece_refuses_is_left_to_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(self: Step, folder: Path, run: Run | None) -> Iterator[Work]:
        def measure(seconds: float) -> WorkCost:
            raise MeasureError("the state is not finite")

        yield Work("a step", measure)

    monkeypatch.setattr(Step, "works", refusing)
    perform(Expected(run=tmp_path / "run"), told := Recorder())
    assert "no forecast: the state is not finite" in told.logs
    with Run.open(tmp_path / "run") as run:
        assert [row.measure for row in run.store.scores()] == ["effect"]


def rows_of(result: Any, but: tuple[str, ...] = ()) -> list[Score]:
    return [row for row in result.rows if not row.metric.startswith(("seconds", "forecast_", "taken_", *but))]


def test_a_sweep_has_the_same_rows_with_a_forecast(
    own_model: Path, texts: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options: dict[str, Any] = {"families": (), "plan": ("1",), "max_length": 16, "tokens": 200}
    plain = layerwise.sweep(own_model, texts, run=tmp_path / "plain", reporter=Recorder(), **options)
    request.getfixturevalue("everything_is_long")
    told = Recorder()
    foretold = layerwise.sweep(own_model, texts, run=tmp_path / "foretold", reporter=told, **options)
    assert any(text.startswith("this will take") for text in told.logs)
    assert foretold.losses == plain.losses
    assert rows_of(foretold) == rows_of(plain)
    config = configured(Sweep, {"model": str(own_model), "text": texts, **options}, "layerwise sweep")
    (unit,) = outline_of(config).ahead
    with Run.open(tmp_path / "foretold") as run:
        assert list(unit.works(run.folder, run)) == [], "nothing is left"
    assert [work.name for work in unit.works(tmp_path, None)] == ["losses", "intervals", "similarity", "states"]


@pytest.mark.slow
def test_trainings_end_alike_with_a_forecast(
    texts: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    """Two arms, of which one has phases: the same losses, and nothing of the trial in the run folder."""
    config = save_config(tmp_path / "config")
    options: dict[str, Any] = {
        "schedule": "stacking",
        "max_length": 16,
        "batch_size": 4,
        "steps": 6,
        "evals": 1,
        "max_epochs": 100.0,
        "device": "cpu",
    }
    plain = train_growth(config, texts, run=tmp_path / "plain", reporter=Recorder(), **options)
    request.getfixturevalue("everything_is_long")
    told = Recorder()
    foretold = train_growth(config, texts, run=tmp_path / "foretold", reporter=told, **options)
    assert any(text.startswith("this will take") for text in told.logs)
    losses = [
        {(row.claim, row.task, row.metric): row.value for row in result.rows if row.metric.endswith(("_loss", "nll"))}
        for result in (plain, foretold)
    ]
    assert losses[0]
    assert losses[0] == losses[1]
    files = [
        sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        for folder in (tmp_path / "plain", tmp_path / "foretold")
    ]
    assert files[0] == files[1]
