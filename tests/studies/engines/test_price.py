"""What is left is counted, one piece of it is timed for a dry run, and nothing is timed for a run."""

import time
from pathlib import Path
from typing import Any

import pytest

import layerwise
from layerwise.data.batches import make_batches
from layerwise.data.text.tokens import Window
from layerwise.errors import MeasureError
from layerwise.measure.interventions.sweep import CostEstimate, estimate_cost, head_cost_in_layers
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.results import Manifest, Run
from layerwise.results.rows import Score
from layerwise.runner import price
from layerwise.runner.arguments import PathLike
from layerwise.runner.price import count_tokens, describe_remaining, fits_in, time_passes
from layerwise.runner.reporter import Reporter
from layerwise.runner.result import Result
from layerwise.runner.study import RunDescription, start_run
from layerwise.runner.tasks import Remaining, Study, Task
from layerwise.runner.verb import from_command_line, verb
from layerwise.stack import Stack, load
from studies.describing import describe_call
from studies.test_runner import Recorder
from train.tiny_models import tiny_llama

DEPTH, LARGE = 6, 64


def text() -> EvalData:
    lengths = [16] * 5 + [6, 2]
    cut = [Window(f"d{n}", "text", 0, tuple(range(1, 1 + size)), 1, size) for n, size in enumerate(lengths)]
    data = EvalData("planted", "0", 16, "next_token", make_batches(cut, LARGE, 0))
    assert [batch.size for batch in data.batches] == [LARGE, 16, 6, 2]
    return data


@pytest.fixture
def stack() -> Stack:
    return load(tiny_llama(DEPTH))


def test_pieces_of_a_kind_are_counted_together_and_one_is_timed() -> None:
    timed: list[str] = []

    def taking(name: str, seconds: float) -> Any:
        return lambda: timed.append(name) or seconds

    left = [
        Remaining(300, "training steps", taking("first", 0.5)),
        Remaining(1_200, "training steps", taking("second", 9.0)),
        Remaining(12, "evaluations"),
    ]
    said = describe_remaining(left, timed=True)
    assert said.startswith("left: 12 evaluations, 1,500 training steps of 0.5 s; about 12 min 30 s in total, at most ")
    assert timed == ["first"]
    assert describe_remaining(left, timed=False) == "left: 12 evaluations, 1,500 training steps"
    assert timed == ["first"]


def test_memory_beyond_that_of_one_piece_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price, "peak_bytes", lambda: 2_000_000_000)
    said = describe_remaining([Remaining(2, "batches", lambda: 1.0, memory_bytes=1_000_000_000)], timed=True)
    assert said.endswith("at most 3 GB of memory")


def test_a_warm_batch_of_median_size_is_timed(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    now, sizes = 0.0, []

    def runs(_: Stack, batch: Any) -> None:
        nonlocal now
        now += 1.0 if sizes else 1e3
        sizes.append(batch.size)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(price, "_run_batch", runs)
    assert time_passes(stack, text()) == 1.0 / LARGE
    assert sizes == [LARGE, LARGE]


def test_plans_by_themselves_count_as_passes_of_their_layers(stack: Stack) -> None:
    data, head = text(), head_cost_in_layers(stack)
    tokens = sum(batch.size for batch in data.batches)
    plans = [Plan.identity(DEPTH), Plan.parse("1-5")]
    due = estimate_cost(stack, plans, data)
    assert count_tokens(stack, due) == pytest.approx(tokens * (1 + (DEPTH - 1 + head) / (DEPTH + head)))
    assert time_passes(stack, data) > 0


def test_what_a_slow_processor_does_in_time_is_not_timed(stack: Stack) -> None:
    passes = CostEstimate(0, 0, 1, DEPTH * 1000 * LARGE, 1000 * LARGE)
    assert fits_in(stack, passes, text(), 12.0)
    assert not fits_in(stack, passes, text(), 9.0), "a call takes 10 ms"


class Step(Task[None]):
    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        return None if run is not None and run.store.scores("effect") else Remaining(100, "steps", self.timed)

    def timed(self) -> float:
        return 0.5

    def execute(self, study: Study) -> None:
        study.store.replace_scores("effect", [Score("effect", "x", 1.0, claim="0")])


@verb("expected")
def expect(*, run: PathLike = None, overwrite: bool = False, reporter: Reporter | None = None) -> Result:
    """Carry out a step."""
    manifest = Manifest("m", None, "w", "float32", "cpu", "c", "h", 8, 80, 10, ("expected",), (), 0)
    step = Step()
    with start_run(RunDescription(manifest=manifest, lines=["a step"], tasks=[step])) as study:
        study.execute(step)
    return Result(study.folder)


def said_of_cost(run: Path) -> list[str]:
    dry = Recorder()
    with from_command_line(dry_run=True):
        expect(run=run, reporter=dry)
    return [each for each in dry.results if each.startswith("left: ")]


def test_a_dry_run_says_what_is_left_and_a_run_times_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (said,) = said_of_cost(tmp_path / "run")
    assert said.startswith("left: 100 steps of 0.5 s; about 50 s in total")
    with monkeypatch.context() as patched:
        patched.setattr(Step, "timed", None)
        expect(run=tmp_path / "run", reporter=Recorder())
    assert said_of_cost(tmp_path / "run") == []


def test_what_a_piece_refuses_is_left_to_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(self: Step) -> float:
        raise MeasureError("the state is not finite")

    monkeypatch.setattr(Step, "timed", refusing)
    assert said_of_cost(tmp_path / "run") == ["left: 100 steps; not timed: the state is not finite"]
    expect(run=tmp_path / "run", reporter=Recorder())
    with Run.open(tmp_path / "run") as run:
        assert [row.measure for row in run.store.scores()] == ["effect"]


def test_nothing_is_left_of_a_sweep_that_is_stored(own_model: Path, texts: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"families": (), "plans": ("1",), "max_length": 16, "tokens": 200}
    (unit,) = describe_call(layerwise.sweep, own_model, texts, **options).tasks
    left = unit.remaining(tmp_path, None)
    assert left.count > 1
    layerwise.sweep(own_model, texts, run=tmp_path / "run", reporter=Recorder(), **options)
    with Run.open(tmp_path / "run") as run:
        assert unit.remaining(run.folder, run) is None
