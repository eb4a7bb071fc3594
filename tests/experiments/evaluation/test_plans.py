"""Models under plans: which rows there are, that nothing runs twice, and where a killed evaluation goes on."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layerwise.data.suites.classification import Task
from layerwise.errors import DataError
from layerwise.experiments import finetuned_tasks
from layerwise.experiments.evaluation.plans import check_one_depth, run_plans, store_summary
from layerwise.experiments.finetuned_tasks import FineTunedModel, run_benchmarks
from layerwise.experiments.options.plans import PlanOptions
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.manifest import Manifest
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import CHANCE, NORMALISED
from layerwise.train.fine_tuning import FineTuningConfig, FineTuningResult
from row_names import named
from train.learners import planted

SETTINGS = FineTuningConfig()
PLANS = PlanOptions(families=("painters",), plan=("0*2 1-3",)).members(4)
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
        location: Path, task: Task, settings: FineTuningConfig, seed: int, *, plan: Plan | None = None, **_: Any
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
        arm, _, seed = label.partition("/")
        models.append(FineTunedModel(arm, int(seed), location, PLANS))
    return models


def _evaluate(models: list[FineTunedModel], tasks: list[Task], run: Run, seeds: int = 1) -> None:
    run_benchmarks(models, tasks, SETTINGS, run, seeds=seeds)
    run_plans(models, tasks, SETTINGS, run, seeds=seeds)
    store_summary(models, tasks, run, seeds=seeds)


def _values(
    run: Run, task: str, metric: str, condition: str | None = None, against: str | None = None
) -> dict[str, float]:
    rows = Rows(run.store.scores("glue", task=task, metric=metric)).where(condition=condition, against=against)
    return {named(replace(row, against=None)): row.value for row in rows}


def test_rows_carry_their_plan_and_the_plans_their_strategy(tmp_path: Path, run: Run, taught: list[Any]) -> None:
    _evaluate(_models(tmp_path), [EASY], run)
    found = _values(run, "easy", "accuracy")
    assert {"bert", "bert/0", "bert/0.0", "0 of bert", "0 of bert/0", "0 of bert/0.0", "0*2 1-3 of bert"} <= set(found)
    assert found["bert"] == 1.0
    assert found["0 of bert"] == pytest.approx(59 / 60)
    assert found["0 1 3 of bert"] == pytest.approx(57 / 60)
    records = {(each.family, each.strategy, each.affected, each.plan) for each in run.store.plans()}
    assert records == {(each.family, each.strategy, each.affected, str(each.plan)) for each in PLANS}


def test_a_killed_evaluation_goes_on_with_the_next_fine_tuning(
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


def test_over_the_tasks_there_is_a_mean_and_the_scale_from_chance(tmp_path: Path, run: Run, taught: list[Any]) -> None:
    _evaluate(_models(tmp_path), [EASY, HARD], run, seeds=2)
    easy, hard = (_values(run, task.name, task.metric) for task in (EASY, HARD))
    means = _values(run, "all", "mean")
    scaled, medians = (_values(run, "all", name, NORMALISED) for name in ("mean", "median"))
    assert means["bert/0.1"] == pytest.approx((easy["bert/0.1"] + hard["bert/0.1"]) / 2)
    assert means["0 of bert"] == pytest.approx((easy["0 of bert"] + hard["0 of bert"]) / 2)
    assert _values(run, "all", "mean", against=CHANCE)["0 of bert"] == pytest.approx(0.25)
    parts = [
        (easy["0 1 3 of bert/0.0"] - 0.5) / (easy["bert"] - 0.5),
        hard["0 1 3 of bert/0.0"] / hard["bert"],
    ]
    assert scaled["0 1 3 of bert/0.0"] == medians["0 1 3 of bert/0.0"] == pytest.approx(sum(parts) / 2)
    assert _values(run, "easy", "accuracy", NORMALISED)["0 1 3 of bert/0.0"] == pytest.approx(parts[0])
    assert not any(" of " not in subject for subject in scaled)
    of = {"arm": "bert", "seed": None, "plan": "0", "condition": None, "against": None}
    (row,) = Rows(run.store.scores("glue", task="all", metric="mean")).where(**of)
    assert row.low is not None
    assert "all: the mean is over easy (accuracy), hard (mcc)." in [note.text for note in run.store.notes("glue")]


def test_a_task_that_stays_at_chance_has_no_scale(tmp_path: Path, run: Run, taught: list[Any]) -> None:
    coin = replace(EASY, name="coin", test=tuple(row._replace(label=0) for row in EASY.test))
    _evaluate(_models(tmp_path), [coin, HARD], run)
    assert _values(run, "coin", "accuracy", NORMALISED) == {}
    assert _values(run, "all", "mean", NORMALISED) == {}
    assert _values(run, "hard", "mcc", NORMALISED)


def test_arms_are_means_over_their_models_under_a_plan_too(tmp_path: Path, run: Run, taught: list[Any]) -> None:
    _evaluate(_models(tmp_path, ("ltg/0", "ltg/1", "elc/0")), [EASY, HARD], run)
    found = _values(run, "easy", "accuracy")
    assert {"0 of ltg", "0 of elc", "0 of ltg/1", "0 of elc/0.0"} <= set(found)
    assert found["0 of ltg"] == pytest.approx((found["0 of ltg/0"] + found["0 of ltg/1"]) / 2)
    assert "0 of elc" in _values(run, "all", "mean", NORMALISED)


def test_models_of_several_depths_share_no_plans(tmp_path: Path) -> None:
    (model,) = _models(tmp_path)
    deeper = replace(model, arm="deep", members=PlanOptions(families=("painters",)).members(6))
    check_one_depth([model, model])
    with pytest.raises(DataError, match=r"differ in depth \(bert/0 has 4 layers, deep/0 has 6 layers\)"):
        check_one_depth([model, deeper])
