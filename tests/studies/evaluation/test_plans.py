"""Evaluation of plans, and evaluation within a time budget."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cli.command import layerwise
from layerwise.data.suites import generated
from layerwise.data.suites.classification import ClassificationTask
from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet
from layerwise.errors import DataError, OptionError
from layerwise.measure.language.babylm import BABYLM
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.manifest import Manifest
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import CHANCE, NORMALIZED
from layerwise.runner.minimal_pairs import ScoringOptions
from layerwise.runner.plan_choice import PlanChoice
from layerwise.runner.text_length import USED
from layerwise.studies.evaluate import finetuned_tasks
from layerwise.studies.evaluate import minutes as module
from layerwise.studies.evaluate.finetuned_tasks import (
    FineTunedModel,
    check_one_depth,
    run_task,
    store_summary,
)
from layerwise.studies.evaluate.minutes import choose_limit, describe_resolution
from layerwise.studies.evaluate.steps import aggregate_lines
from layerwise.train.fine_tuning import FineTuningConfig, FineTuningResult
from row_names import named
from train.learners import planted

SETTINGS = FineTuningConfig()
PLANS = PlanChoice(("painters",), (Plan.parse("0*2 1-3"),)).list_members(4)
EASY, HARD = replace(planted(), name="easy", metric="accuracy", also=()), replace(planted(seed=1), name="hard")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    manifest = Manifest("bert", None, "w1", "float32", "cpu", "texts", "c1", 3, 90, 64, ("evaluation",), ("glue",), 7)
    with Run.create(tmp_path / "run", manifest) as found:
        yield found


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str | None, int]]:
    found: list[tuple[str, str, str | None, int]] = []

    def known(
        location: Path,
        task: ClassificationTask,
        settings: FineTuningConfig,
        seed: int,
        *,
        plan: Plan | None = None,
        **_: Any,
    ) -> FineTuningResult:
        found.append((Path(location).name, task.name, None if plan is None else str(plan), seed))
        wrong = (0 if plan is None else len(plan.steps())) + seed
        labels = tuple(row.label for row in task.test)
        answers = (*(1 - label for label in labels[:wrong]), *labels[wrong:])
        return FineTuningResult(answers, labels, 0.5, 1e-3, 1, 0.1)

    monkeypatch.setattr(finetuned_tasks, "fine_tune", known)
    return found


def _models(folder: Path, labels: tuple[str, ...] = ("bert/0",)) -> list[FineTunedModel]:
    models = []
    for label in labels:
        location = folder / label.replace("/", "-")
        location.mkdir(exist_ok=True)
        (location / "config.json").write_text(json.dumps({"label": label}))
        variant, _, seed = label.partition("/")
        models.append(FineTunedModel(variant, int(seed), location, PLANS))
    return models


def _evaluate(models: list[FineTunedModel], tasks: list[ClassificationTask], run: Run, seeds: int = 1) -> None:
    how: dict[str, Any] = {"seeds": seeds, "progress": lambda label, share: None, "device": "cpu"}
    for task in tasks:
        for plan in (None, *models[0].plans):
            run_task(models, task, SETTINGS, run, plan=plan, **how)
    store_summary(models, tasks, run, seeds=seeds)


def _values(
    run: Run, task: str, metric: str, condition: str | None = None, against: str | None = None
) -> dict[str, float]:
    rows = Rows(run.store.scores("glue", task=task, metric=metric)).where(condition=condition, against=against)
    return {named(replace(row, against=None)): row.value for row in rows}


def test_rows_have_their_plan_and_plans_their_strategy(tmp_path: Path, run: Run, taught: list[Any]) -> None:
    _evaluate(_models(tmp_path), [EASY], run)
    found = _values(run, "easy", "accuracy")
    assert {"bert", "bert/0", "bert/0.0", "0 of bert", "0 of bert/0", "0 of bert/0.0", "0*2 1-3 of bert"} <= set(found)
    assert found["bert"] == 1.0
    assert found["0 of bert"] == pytest.approx(59 / 60)
    assert found["0 1 3 of bert"] == pytest.approx(57 / 60)
    records = {(each.family, each.strategy, each.affected, each.plan) for each in run.store.plans()}
    assert records == {(each.family, each.strategy, each.affected, str(each.plan)) for each in PLANS}


def test_an_interrupted_evaluation_resumes_with_the_next_fine_tuning(
    tmp_path: Path, run: Run, taught: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = _models(tmp_path)
    own = finetuned_tasks.fine_tune

    def killed(*args: Any, **options: Any) -> FineTuningResult:
        if len(taught) == 7:
            raise KeyboardInterrupt
        return own(*args, **options)

    monkeypatch.setattr(finetuned_tasks, "fine_tune", killed)
    with pytest.raises(KeyboardInterrupt):
        _evaluate(models, [EASY], run)
    assert len(_values(run, "easy", "accuracy")) == 3 * 7
    first = taught.copy()
    monkeypatch.setattr(finetuned_tasks, "fine_tune", own)
    _evaluate(models, [EASY], run)
    assert taught[:7] == first
    assert len(taught) == len(set(taught)) == len({member.plan for member in PLANS})


def test_the_summary_has_means_and_the_scale_from_chance(tmp_path: Path, run: Run, taught: list[Any]) -> None:
    _evaluate(_models(tmp_path), [EASY, HARD], run, seeds=2)
    easy, hard = (_values(run, task.name, task.metric) for task in (EASY, HARD))
    means = _values(run, "all", "mean")
    scaled, medians = (_values(run, "all", name, NORMALIZED) for name in ("mean", "median"))
    assert means["bert/0.1"] == pytest.approx((easy["bert/0.1"] + hard["bert/0.1"]) / 2)
    assert means["0 of bert"] == pytest.approx((easy["0 of bert"] + hard["0 of bert"]) / 2)
    assert _values(run, "all", "mean", against=CHANCE)["0 of bert"] == pytest.approx(0.25)
    parts = [(easy["0 1 3 of bert/0.0"] - 0.5) / (easy["bert"] - 0.5), hard["0 1 3 of bert/0.0"] / hard["bert"]]
    assert scaled["0 1 3 of bert/0.0"] == medians["0 1 3 of bert/0.0"] == pytest.approx(sum(parts) / 2)
    assert _values(run, "easy", "accuracy", NORMALIZED)["0 1 3 of bert/0.0"] == pytest.approx(parts[0])
    assert not any(" of " not in subject for subject in scaled)
    of = {"variant": "bert", "seed": None, "plan": "0", "condition": None, "against": None}
    (row,) = Rows(run.store.scores("glue", task="all", metric="mean")).where(**of)
    assert row.low is not None
    assert "all: the mean is over easy (accuracy), hard (mcc)." in [note.text for note in run.store.notes("glue")]


def test_models_of_different_depth_are_an_error(tmp_path: Path) -> None:
    (model,) = _models(tmp_path)
    deeper = replace(model, variant="deep", members=PlanChoice(("painters",)).list_members(6))
    check_one_depth([model, model])
    with pytest.raises(DataError, match=r"but bert/0 has 4 layers, deep/0 has 6 layers"):
        check_one_depth([model, deeper])


def suite(counts: Sequence[int], name: str = "p") -> PairSet:
    pairs = [MinimalPair("a", "b", f"{name}{at}", "", "") for at, count in enumerate(counts) for _ in range(count)]
    return PairSet(name, name, tuple(pairs))


class Clock:
    def __init__(self, opening: float, each: float) -> None:
        self.now, self.opening, self.each = 0.0, opening, each
        self.scored: list[set[str]] = []

    def open(self) -> Any:
        self.now += self.opening

    def preferences(self, _: object, pairs: Sequence[MinimalPair], **options: Any) -> np.ndarray:
        self.now += self.each * len(pairs)
        self.scored.append({pair.paradigm for pair in pairs})
        return np.ones(len(pairs))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(opening=5.0, each=0.05)
    for name in ("perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, lambda: clock.now)
    monkeypatch.setattr(module, "preferences", clock.preferences)
    return clock


@pytest.mark.parametrize(("minutes", "models"), [(1, 1), (3, 1), (3, 2), (10, 3)])
def test_the_limit_uses_most_of_the_minutes(clock: Clock, minutes: int, models: int) -> None:
    suites = [suite([9_000, 5_000]), suite([400], "q")]
    limit, text = choose_limit(minutes, clock.open, suites, models=models, began=0.0, options=ScoringOptions())
    pairs = sum(min(limit, count) for count in (9_000, 5_000, 400))
    end = clock.now + (models - 1) * clock.opening + models * clock.each * pairs
    assert 0.95 * USED * 60 * minutes < end <= USED * 60 * minutes
    assert clock.scored == [{"p0", "p1", "q0"}] * 2, "pairs of all suites are timed, and the first time warms up"
    assert f"pairs: {pairs:,} of 14,400" in text
    assert f"--limit {limit} selects the same pairs" in text


def test_too_few_minutes_are_an_error_with_the_required_number(clock: Clock) -> None:
    clock.each = 1.0
    arguments: dict[str, Any] = {"models": 1, "began": 0.0, "options": ScoringOptions()}
    with pytest.raises(OptionError, match=r"--minutes must be at least 2, got [^:]+: one pair of each of the 3"):
        choose_limit(1, clock.open, [suite([50, 50, 50])], **arguments)
    clock.now = 0.0
    limit, _ = choose_limit(2, clock.open, [suite([50, 50, 50])], **arguments)
    assert limit


def test_half_of_the_detectable_effect_takes_four_times_the_pairs() -> None:
    def points(count: int) -> float:
        return float(next(describe_resolution([suite([count])])).split()[-4])

    assert points(4_000) == pytest.approx(100 * (1.961 + 0.842) * 0.5 / 4_000**0.5, rel=0.01)
    assert points(1_000) == pytest.approx(2 * points(4_000), rel=0.01)


def test_the_same_command_scores_the_same_pairs(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "PARADIGMS", dict(islice(generated.PARADIGMS.items(), 2)))
    choices = iter([3, 2, 5])
    monkeypatch.setattr("layerwise.studies.evaluate.minutes.choose_limit", lambda *_, **__: (next(choices), "chosen"))
    command = ("evaluate", model, "--run", tmp_path / "run", "--minutes")
    first, again, other = (layerwise(*command, minutes) for minutes in (1, 1, 2))
    assert first.code == again.code == other.code == 0, first.err + again.err + other.err
    assert "the first 3 pairs of each paradigm" in first.out
    assert again.out == first.out
    assert "the first 2 pairs of each paradigm" in other.out
    anew = layerwise(*command, "1", "--overwrite")
    assert "the first 5 pairs of each paradigm" in anew.out


def _run(*rows: Score) -> Any:
    return SimpleNamespace(store=SimpleNamespace(scores=lambda measure: rows))


def _part(name: str, value: float, files: int, examples: int | None) -> tuple[Score, Score]:
    return (
        Score(BABYLM, "part", value, task=name, variant="elc", documents=examples),
        Score(BABYLM, "files", float(files), task=name, variant="elc"),
    )


def test_the_aggregate_has_the_number_of_files() -> None:
    parts = (*_part("blimp", 52.77, 17, 1152), *_part("glue", 43.9, 10, 160), *_part("msgs", 0.0, 11, None))
    total = Score(BABYLM, "aggregate", 39.56, variant="elc")
    head, columns, line = (
        re.split(r"\s{2,}", text.strip()) for text in aggregate_lines(_run(*parts, total)).split("\n")
    )
    assert head == ["BabyLM's aggregate of 2023, 0.5 blimp + 0.3 glue + 0.2 msgs, in points:"]
    assert columns == ["variant", "aggregate", "blimp", "glue", "msgs"]
    assert line == ["elc", "39.6, partial", "52.8 (1,152 examples)", "43.9 (10 of 11 files, 160 examples)", "0.0"]
    *_, last = aggregate_lines(_run(*parts[:2])).split("\n")
    absent = "– (0 of 11 files)"
    assert re.split(r"\s{2,}", last.strip()) == ["elc", "–", "52.8 (1,152 examples)", absent, absent]
    assert aggregate_lines(_run()) == ""
