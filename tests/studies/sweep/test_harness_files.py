"""Files of a sweep equal those that lm-eval writes of the same model under the same plan."""

import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from layerwise.plan import Plan
from layerwise.results import Manifest
from layerwise.stack import Stack
from layerwise.studies.sweep.benchmarks import name_folder, write_harness_results
from measure.language.local_tasks import write_tasks
from studies.lm_eval_runs import NAMES, judge, manifest_of, tiny_stack, write_theirs

pytest.importorskip("lm_eval", reason="needs layerwise[eval]")

PLAN = Plan.parse("0 2 1*2 3")
LIMIT = 5


@pytest.fixture(scope="module")
def stack() -> Stack:
    return tiny_stack()


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    write_tasks(folder)
    return folder


@pytest.fixture(scope="module")
def results(stack: Stack, tasks: Path) -> dict[str, Any]:
    (judged,) = judge(stack, [PLAN], tasks, LIMIT)
    content: dict[str, Any] = judged.results
    return content


@pytest.fixture
def manifest(stack: Stack) -> Manifest:
    return manifest_of(stack)


@pytest.fixture
def theirs(stack: Stack, tasks: Path, tmp_path: Path) -> dict[str, Any]:
    write_theirs(stack, PLAN, tasks, LIMIT, tmp_path / "theirs", bootstrap=1000)
    (file,) = (tmp_path / "theirs").rglob("results_*.json")
    content: dict[str, Any] = json.loads(file.read_text())
    return content


EQUAL = (
    *("group_subtasks", "versions", "n-shot", "higher_is_better", "n-samples", "task_hashes"),
    *("transformers_version", "lm_eval_version", "max_length", "eot_token_id", "model_source"),
    *("chat_template", "system_instruction"),
)
TOLERANCE = 1e-4
"""Perplexities are exponentials of sums in float32 over a few dozen tokens."""


def test_the_file_equals_that_of_lm_eval(
    results: dict[str, Any], theirs: dict[str, Any], manifest: Manifest, tmp_path: Path
) -> None:
    from lm_eval.utils import make_table

    file = write_harness_results(tmp_path / "run", PLAN, results, manifest, datetime(2026, 7, 1, 12), 3.5)
    assert file.name == "results_2026-07-01T12-00-00.json"
    ours = json.loads(file.read_text())
    assert ours.keys() == theirs.keys()
    assert ours["config"].keys() == theirs["config"].keys()
    expected = {**theirs, "model_source": "hf"}
    for name in EQUAL:
        assert ours[name] == expected[name], name
    assert ours["results"].keys() == theirs["results"].keys() == set(NAMES)
    for task, values in theirs["results"].items():
        mine = ours["results"][task]
        assert mine.keys() == values.keys()
        for key, value in values.items():
            assert mine[key] == (pytest.approx(value, rel=TOLERANCE) if isinstance(value, float) else value), key
    # Other keys of a task in lm-eval also tell where its data is.
    for task, config in theirs["configs"].items():
        assert ours["configs"][task].keys() == config.keys()
        for key in ("task", "output_type", "num_fewshot", "metric_list", "doc_to_text", "doc_to_target"):
            assert ours["configs"][task].get(key) == config.get(key), key
    assert ours["config"]["limit"] == theirs["config"]["limit"] == LIMIT
    assert ours["config"]["model_args"]["plan"] == str(PLAN)
    assert [row.split("|")[1:7] for row in make_table(ours).splitlines()] == [
        row.split("|")[1:7] for row in make_table(theirs).splitlines()
    ]


def test_git_is_empty_outside_a_repository(
    results: dict[str, Any],
    manifest: Manifest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write_harness_results(tmp_path, PLAN, results, manifest, datetime(2026, 7, 1), 1.0)
    assert json.loads(file.read_text())["git_hash"] is None
    assert capfd.readouterr() == ("", "")


def test_a_plan_has_one_file(results: dict[str, Any], manifest: Manifest, tmp_path: Path) -> None:
    for day in (1, 2):
        last = write_harness_results(tmp_path, PLAN, results, manifest, datetime(2026, 7, day), 1.0)
    other = write_harness_results(tmp_path, Plan.parse("0-3"), results, manifest, datetime(2026, 7, 1), 1.0)
    assert set(tmp_path.rglob("results_*.json")) == {last, other}
    assert not any(
        math.isnan(value)
        for value in json.loads(last.read_text())["results"]["arc_tiny"].values()
        if isinstance(value, float)
    )


def test_plans_have_valid_file_names() -> None:
    long = Plan.parse(" ".join(f"({layer}|{layer + 1})*2" for layer in range(90)))
    plans = [long, Plan.parse("0 (1|2) 3"), Plan.parse("0 (2|1) 3"), Plan.parse("0 1*2"), Plan.parse("[0 1]*2")]
    names = [name_folder(plan) for plan in plans]
    assert len(set(names)) == len(plans)
    assert all(len(name) < 80 and not set(name) & set('/\\|*?"<>:') for name in names)
