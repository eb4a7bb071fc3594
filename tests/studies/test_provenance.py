"""What a measurement is of: its machine, its task files, and the plan that a search chose."""

from pathlib import Path

import pytest
import torch

from layerwise.errors import PlanError
from layerwise.results import Manifest, Run
from layerwise.runner.opening import describe_numerics, hash_tasks, read_numerics
from layerwise.runner.plan_choice import resolve_plan
from layerwise.stack.precision import matmul_precision


def test_how_a_model_is_asked_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert describe_numerics("cpu", "auto") == "float32 on cpu, 1 thread"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert describe_numerics("cpu", "bfloat16") == "bfloat16 on cpu, 2 threads"
    assert describe_numerics("meta", "auto") == "auto on meta"
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert describe_numerics("meta", "auto") == "auto on meta, matmul_precision medium"


@pytest.mark.parametrize(("asked", "word"), [("tf32", "high"), ("ieee", "highest")])
def test_the_precision_of_products_is_known_by_either_way_of_setting_it(asked: str, word: str) -> None:
    cuda, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.fp32_precision
    try:
        cuda.fp32_precision = asked
        assert matmul_precision() == read_numerics("meta")["matmul_precision"] == word
    finally:
        cuda.fp32_precision = before
    assert matmul_precision() == "highest"


def test_task_files_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    def written(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return hash_tasks(tmp_path)

    first = written("task.yaml", "task: a")
    assert written("task.yaml", "task: b") != first
    assert written("task.yaml", "task: a") == first
    second = written("data/questions.jsonl", "{}")
    assert second != first
    for name in (
        "notes.md",
        ".hidden.yaml",
        "__pycache__/task.py",
        "run/run.sqlite",
        "cache/dataset_info.json",
        "cache/a.arrow",
    ):
        assert written(name, "x") == second
    assert written("run/manifest.json", "{}") == second


MANIFEST = Manifest("m", None, "w", "float32", "cpu", "c", "h", 1, 1, 1, (), (), 0)


def test_a_run_that_chose_none_is_refused(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", MANIFEST):
        pass
    with pytest.raises(PlanError, match="does not contain a selected plan"):
        resolve_plan(str(tmp_path / "run"))
