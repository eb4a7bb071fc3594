"""`layerwise evaluate`: a model and the models of a run on pairs and tasks, and invalid options."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cli.command import layerwise, refused
from cli.conftest import save_llama
from data.glue_files import write
from layerwise import evaluate, load
from layerwise.data.suites import generated
from layerwise.data.suites.classification import ClassificationTask
from layerwise.data.suites.generated import SUITE
from layerwise.data.suites.minimal_pairs import SUITES as PUBLISHED
from layerwise.errors import DataError, OptionError, RunError, TrainError
from layerwise.plan import Plan
from layerwise.results import Manifest, Run
from layerwise.results.training_record import TrainingRecord
from layerwise.runner.reporter import Silent
from layerwise.studies.evaluate import finetuned_tasks
from layerwise.studies.evaluate.verb import FINE_TUNED, SUITES
from layerwise.train.fine_tuning import FineTuningConfig, FineTuningResult
from row_names import named


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "PARADIGMS", dict(islice(generated.PARADIGMS.items(), 3)))


def test_the_suites_in_the_help_match_the_code() -> None:
    assert set(SUITES) == {SUITE, *PUBLISHED, *FINE_TUNED}


def save_pairs(folder: Path, name: str = "mine.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    rows = [{"sentence_good": f"the {n} is", "sentence_bad": f"the {n} are"} for n in range(5)]
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


def test_a_single_model_is_evaluated_in_a_new_run(model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    own = save_pairs(tmp_path / "data")
    ended = layerwise("evaluate", model, "--suite", f"pairs,{own}", "--limit", "3", "--run", run)
    assert ended.code == 0, ended.err
    assert "chance 0.5" in ended.out
    assert "pairs mine.jsonl" in ended.out
    with Run.open(run) as opened:
        found = {named(row) for row in opened.store.scores("pairs mine.jsonl")}
        assert found == {"tiny/0", "tiny"}
        assert opened.manifest.families == ("evaluation",)
        assert next(iter(opened.store.scores("pairs", task="all", metric="accuracy"))).documents == 3 * 3
    assert (run / "report.html").is_file()
    again = layerwise("evaluate", model, "--suite", f"pairs,{own}", "--limit", "3", "--run", run)
    assert again.out == ended.out


@pytest.mark.slow
def test_every_model_of_a_run_is_evaluated(tmp_path: Path) -> None:
    run = tmp_path / "run"
    manifest = Manifest("m", None, "w", "float32", "cpu", "c", "h", 1, 1, 1, ("robustness",), (), 0)
    with Run.create(run, manifest):
        pass
    for variant in ("elc", "ltg"):
        path = save_llama(run / variant / "seed-0" / "model", depth=2)
        TrainingRecord(variant, 0, "b", "d", "n", {"variant": "plain"}, 1, 1.0, 1, 1.0, 1).write(path)
    ended = layerwise("evaluate", run, "--limit", "2", "--quiet")
    assert ended.code == 0, ended.err
    with Run.open(run) as opened:
        found = {named(row) for row in opened.store.scores("pairs", metric="accuracy")}
    assert found == {"elc/0", "elc", "ltg/0", "ltg"}
    assert "--run must not be given, because" in refused("evaluate", run, "--run", tmp_path / "other")
    assert "--tokenizer has no effect on a training run" in refused("evaluate", run, "--tokenizer", "x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "blmp"], "unknown suite or file 'blmp'; did you mean blimp?"),
        (["--suite", "blimp"], "Pass the directory of its files with --data"),
        (["--suite", ","], "--suite must not be empty"),
        (["--tasks", "cola"], "--tasks requires one of glue, msgs, msgs-ours"),
        (["--suite", "msgs-ours", "--families", "painter"], "Unknown family 'painter'; did you mean painters"),
        (["--suite", "msgs-ours", "--train", "heads"], "Did you mean head?"),
        (["--suite", "attribution", "--layer-weights", "held"], "--layer-weights requires a run"),
        (["--minutes", "3", "--limit", "5"], "--minutes and --limit cannot be combined"),
        (["--suite", "msgs-ours,pairs", "--minutes", "3"], "Evaluate msgs-ours in a second run"),
    ],
)
def test_invalid_options_are_rejected_before_a_model_is_loaded(arguments: list[str], message: str) -> None:
    assert message in " ".join(refused("evaluate", "no-such-model", *arguments).split())


def test_missing_files_are_an_error_without_a_run_directory(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = layerwise("evaluate", model, "--suite", "ewok", "--data", tmp_path)
    assert ended.code == 2
    assert "expected ewok.zip" in ended.err
    said = refused("evaluate", model, "--suite", "glue", "--tasks", "BoolQ", "--data", tmp_path)
    assert "no files of boolq" in said
    assert "Required: boolq.train" in " ".join(said.split())
    assert not (tmp_path / "runs").exists()


def test_an_opened_model_is_evaluated_in_python(model: Path, tmp_path: Path) -> None:
    own = save_pairs(tmp_path / "data")
    stack = load(model)
    result = evaluate(stack, reporter=Silent(), suite=(str(own),), run=tmp_path / "run")
    table = result.table("pairs mine.jsonl")
    assert set(zip(table["variant"], table["seed"], strict=True)) >= {("tiny", 0)}
    with pytest.raises(DataError, match="fine-tuning must load the model again"):
        evaluate(stack, reporter=Silent(), suite=("msgs-ours",), tasks=("control length",), run=tmp_path / "other")


def test_fine_tuning_on_several_processes_is_an_error(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainError, match="Start it without torchrun"):
        evaluate(model, reporter=Silent(), suite=("msgs-ours",), tasks=("control length",), run=tmp_path / "run")


def test_overwrite_discards_the_rows_of_the_named_suites(model: Path, tmp_path: Path) -> None:
    own, run = save_pairs(tmp_path / "data"), tmp_path / "run"
    evaluate(model, reporter=Silent(), suite=(str(own),), run=run)
    with Run.open(run) as opened:
        before = opened.store.scores()
    with pytest.raises(RunError, match="pass overwrite"):
        evaluate(model, reporter=Silent(), suite=(str(own),), limit=2, run=run)
    evaluate(model, reporter=Silent(), suite=(str(own),), limit=2, run=run, overwrite=True)
    with Run.open(run) as opened:
        assert opened.store.scores() != before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": Path("x")}, "data requires a published suite"),
        ({"seeds": 2}, "seeds requires one of glue, msgs"),
        ({"plans": ("0 1",)}, "plans requires one of glue"),
        ({"learning_rate": 1e-3}, "learning_rate requires one of glue"),
        ({"suite": ("msgs-ours",), "temperature": 2.0}, "temperature requires a suite of pairs"),
    ],
)
def test_options_that_no_suite_uses_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        evaluate("demo", reporter=Silent(), **options)


@pytest.mark.slow
def test_a_single_task_is_compared_with_chance(model: Path, tmp_path: Path) -> None:
    command = ("evaluate", model, "--suite", "msgs-ours", "--run", tmp_path / "run", "--tasks", "Control Length")
    ended = layerwise(*command, "--limit", "8", "--seeds", "1")
    assert ended.code == 0, ended.err
    printed = ended.out[ended.out.index(", fine-tuned:") :].splitlines()
    assert printed[1].split() == ["task", "metric", "chance", "tiny"]
    assert printed[2].split()[:4] == ["control", "length", "mcc", "0.000"]
    with Run.open(tmp_path / "run") as run:
        assert {row.task for row in run.store.scores("msgs-ours")} == {"control length"}
    said = refused("evaluate", model, "--suite", "msgs-ours", "--tasks", "control lenth", "--run", tmp_path / "other")
    assert "unknown task 'control lenth'; did you mean control length" in " ".join(said.split())


@pytest.fixture
def right(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, FineTuningConfig, str | None]]:
    calls: list[tuple[str, FineTuningConfig, str | None]] = []

    def answered(
        location: Any,
        task: ClassificationTask,
        settings: FineTuningConfig,
        seed: int,
        *,
        plan: Plan | None = None,
        **_: Any,
    ) -> FineTuningResult:
        calls.append((task.name, settings, None if plan is None else str(plan)))
        labels = tuple(row.label for row in task.test)
        answers = labels if plan is None else (1 - labels[0], *labels[1:])
        return FineTuningResult(answers, labels, 1.0, 1e-3, 1, 0.1)

    monkeypatch.setattr(finetuned_tasks, "fine_tune", answered)
    return calls


def test_plans_are_fine_tuned_and_compared_with_the_original_model(
    model: Path, tmp_path: Path, right: list[Any]
) -> None:
    for name in ("rte", "cola"):
        write(tmp_path / "glue", name)
    suite = ("--suite", "glue", "--tasks", "cola,rte", "--data", tmp_path)
    plans = ("--families", "leave_one_out", "--plan", "0 (1|2)*2 3")
    arguments = ("evaluate", model, *suite, *plans, "--seeds", "1", "--train", "head", "--epochs", "3")
    dry = layerwise(*arguments, "--dry-run")
    assert "plans: 5, each used in fine-tuning and testing, compared with the original model" in dry.out
    assert f"{(1 + 5) * 2} fine-tuning runs" in dry.out
    ended = layerwise(*arguments, "--run", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert len(right) == 12
    assert {(settings.train, settings.epochs) for _, settings, _ in right} == {("head", 3)}
    assert {plan for *_, plan in right} == {None, "1-3", "0 2 3", "0 1 3", "0-2", "0 (1|2)*2 3"}
    assert "glue under plans, used in fine-tuning and testing, tiny:" in ended.out
    assert "0 (1|2)*2 3 " in ended.out
    assert "0 (1|2)*2 3 of tiny" not in ended.out
    with Run.open(tmp_path / "run") as run:
        found = {named(row) for row in run.store.scores("glue", task="all", metric="mean") if row.condition}
        assert "0 (1|2)*2 3 of tiny" in found
        assert {record.family for record in run.store.plans()} == {"identity", "leave_one_out", "given"}
    right.clear()
    again = layerwise(*arguments, "--run", tmp_path / "run")
    assert again.out == ended.out
    assert right == []
    other = [argument if argument != "head" else "all" for argument in arguments]
    said = " ".join(refused(*other, "--run", tmp_path / "run").split())
    assert "its train is head, not unset" in said
