"""Evaluations by lm-eval and by a sweep, of one model under the same plans."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import layerwise
from layerwise.errors import RunError
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.evaluations import EvaluationLog, match
from layerwise.studies.sweep.benchmarks import write_harness_results
from measure.language.local_tasks import write_tasks
from studies.comparison.evaluation_folders import Evaluation
from studies.lm_eval_runs import judge, manifest_of, tiny_stack, write_theirs

pytest.importorskip("lm_eval", reason="needs layerwise[eval]")
pytestmark = pytest.mark.slow

TRAINED, SHORTER = Plan.parse("0-3"), Plan.parse("0 3")
PLANS = {"trained": TRAINED, "shorter": SHORTER}
LIMIT = 9


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root, stack = tmp_path_factory.mktemp("evaluations"), tiny_stack()
    (root / "tasks").mkdir()
    write_tasks(root / "tasks")
    for name, plan in PLANS.items():
        write_theirs(stack, plan, root / "tasks", LIMIT, root / name)
    manifest, plans = manifest_of(stack), list(PLANS.values())
    with Run.create(root / "run", manifest) as run:
        for plan, each in zip(plans, judge(stack, plans, root / "tasks", LIMIT), strict=True):
            run.store.add_losses(each.rows)
            write_harness_results(root / "run", plan, each.results, manifest, datetime(2026, 7, 1, 12), 1.0)
    return {name: root / name for name in (*PLANS, "run")}


def plan_folder(run: Path, plan: Plan) -> Path:
    return next(path for path in (run / "lm_eval").iterdir() if path.name.startswith(str(plan)))


def rows(*sides: Path) -> dict[tuple[str, str], Any]:
    found = layerwise.compare(*sides).rows
    return {(row.task, row.metric): row for row in found if row.measure == "paired"}


def test_simulated_folders_have_the_fields_of_lm_eval(folders: dict[str, Path], tmp_path: Path) -> None:
    (path,) = folders["trained"].rglob("samples_arc_tiny_*.jsonl")
    theirs = json.loads(path.read_text().splitlines()[0])
    ours = Evaluation({"arc_tiny": {"acc": [1], "acc_norm": [1]}})
    assert ours.samples["arc_tiny"][0].keys() == theirs.keys()
    assert type(theirs["arguments"]["gen_args_0"]["arg_0"]) is str
    (results,) = folders["trained"].rglob("results_*.json")
    assert ours.results.keys() <= json.loads(results.read_text()).keys()


def test_metrics_of_lm_eval_are_recognized(folders: dict[str, Path]) -> None:
    both = rows(folders["trained"], folders["shorter"])
    assert {(task, metric) for task, metric in both if task != "all"} == {
        ("arc_tiny", "acc"),
        ("arc_tiny", "acc_norm"),
        ("lambada_tiny", "acc"),
        ("lambada_tiny", "log perplexity"),
        *((task, metric) for task, metric in both if task == "gsm8k_tiny"),
    }
    stated = [EvaluationLog.read(str(folders[name])).tasks["arc_tiny"][0].stated["acc", "none"] for name in PLANS]
    assert both["arc_tiny", "acc"].value == pytest.approx(stated[1] - stated[0])
    assert both["arc_tiny", "acc"].documents == LIMIT


def test_a_sweep_agrees_with_lm_eval(folders: dict[str, Path]) -> None:
    own = [plan_folder(folders["run"], plan) for plan in PLANS.values()]
    theirs, ours = rows(folders["trained"], folders["shorter"]), rows(*own)
    assert ours.keys() <= theirs.keys()
    assert ("arc_tiny", "acc_norm") in ours
    for key, row in ours.items():
        if key[0] != "all":
            assert (row.value, row.low, row.high, row.p) == (
                theirs[key].value,
                theirs[key].low,
                theirs[key].high,
                theirs[key].p,
            )


def test_a_sweep_is_compared_with_an_evaluation_of_lm_eval(folders: dict[str, Path]) -> None:
    own = plan_folder(folders["run"], TRAINED)
    both = rows(folders["trained"], own)
    assert {row.value for row in both.values()} == {0.0}
    with pytest.raises(RunError) as error:
        layerwise.compare(folders["run"], folders["trained"])
    assert str(error.value).startswith(f"{folders['run']} contains 2 evaluations. Pass one of them: lm_eval/0 3-")


def test_different_documents_are_rejected(folders: dict[str, Path], tmp_path: Path) -> None:
    other = Evaluation({"arc_tiny": {"acc_norm": [1] * LIMIT}}).write(tmp_path / "other")
    own = plan_folder(folders["run"], TRAINED)
    log = EvaluationLog.read(str(own)).tasks["arc_tiny"][0]
    against = EvaluationLog.read(str(other)).tasks["arc_tiny"][0]
    with pytest.raises(RunError) as error:
        match("arc_tiny in A and B", log, replace(against, settings=log.settings))
    assert str(error.value) == (
        "Documents or prompts of arc_tiny in A and B differ. Evaluate both models on the same ones."
    )
