from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import layerwise, refused
from cli.conftest import save_llama
from layerwise.cli import evaluate
from layerwise.data.grammar import SUITE
from layerwise.data.minimal_pairs import SUITES as PUBLISHED
from layerwise.results import Manifest, Run
from layerwise.results.pedigree import Pedigree


def test_suites_in_the_help_are_those_of_the_code() -> None:
    assert set(evaluate.SUITES) == {SUITE, *PUBLISHED, *evaluate.FINE_TUNED}


def save_pairs(folder: Path, name: str = "mine.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    rows = [{"sentence_good": f"the {n} is", "sentence_bad": f"the {n} are"} for n in range(5)]
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


def test_a_single_model_gets_a_run_of_its_own(model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    own = save_pairs(tmp_path / "data")
    ended = layerwise("evaluate", model, "--suite", f"pairs,{own}", "--limit", "3", "--run", run)
    assert ended.code == 0, ended.err
    assert "chance 0.5" in ended.out
    assert "pairs mine.jsonl" in ended.out
    with Run.open(run) as opened:
        found = {row.subject for row in opened.store.scores("pairs mine.jsonl")}
        assert found == {"tiny/0", "tiny"}
        assert opened.manifest.families == ("evaluation",)
        assert next(iter(opened.store.scores("pairs", task="all", metric="accuracy"))).documents == 21 * 3
    assert (run / "report.html").is_file()
    again = layerwise("evaluate", model, "--suite", f"pairs,{own}", "--limit", "3", "--run", run)
    assert again.out == ended.out


def test_every_model_of_a_run_is_asked_into_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    manifest = Manifest(
        model="m", revision=None, weight_hash="w", dtype="float32", device="cpu", corpus="c", corpus_hash="h",
        documents=1, tokens=1, window=1, families=("robustness",), tasks=(), seed=0,
    )  # fmt: skip
    with Run.create(run, manifest):
        pass
    for arm in ("elc", "ltg"):
        place = save_llama(run / arm / "seed-0" / "model", depth=2)
        pedigree = Pedigree(
            arm=arm, seed=0, base="b", data="d", data_name="n", recipe={"variant": "plain"}, steps=1, epochs=1.0,
            examples=1, seconds=1.0, best_step=1,
        )  # fmt: skip
        pedigree.write(place)
    ended = layerwise("evaluate", run, "--limit", "2", "--quiet")
    assert ended.code == 0, ended.err
    with Run.open(run) as opened:
        found = {row.subject for row in opened.store.scores("pairs", metric="accuracy")}
    assert found == {"elc/0", "elc", "ltg/0", "ltg"}
    assert "leave out --run" in refused("evaluate", run, "--run", tmp_path / "other")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "blmp"], "there is no suite and no file 'blmp'; did you mean blimp?"),
        (["--suite", "blimp"], "give the folder that holds its files, --data FOLDER"),
        (["--suite", ","], "--suite names nothing"),
        (["--tasks", "cola"], "ask for one of glue, msgs, msgs-ours"),
    ],
)
def test_what_is_asked_is_checked_before_a_model_is_loaded(arguments: list[str], message: str) -> None:
    assert message in " ".join(refused("evaluate", "no-such-model", *arguments).split())


def test_missing_files_and_temperatures_are_refused_without_a_run_folder(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = layerwise("evaluate", model, "--suite", "ewok", "--data", tmp_path)
    assert ended.code == 2
    assert "looked for ewok.zip" in ended.err
    said = refused("evaluate", model, "--suite", "glue", "--tasks", "BoolQ", "--data", tmp_path)
    assert "no files of boolq" in said
    assert "it needs boolq.train and boolq.valid" in " ".join(said.split())
    ended = layerwise("evaluate", model, "--temperature", "0")
    assert ended.code == 2
    assert "temperature of 0" in ended.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_one_task_can_be_asked_for_and_stands_beside_the_commonest_answer(model: Path, tmp_path: Path) -> None:
    ended = layerwise(
        "evaluate", model, "--suite", "msgs-ours", "--tasks", "Control Length", "--limit", "8", "--seeds", "1", "--run",
        tmp_path / "run",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "msgs-ours (fine-tuned; beside each score what always giving the commonest answer gives):" in ended.out
    assert "control length tiny             mcc" in ended.out
    assert "commonest 0.000" in ended.out
    with Run.open(tmp_path / "run") as run:
        assert {row.task for row in run.store.scores("msgs-ours")} == {"control length"}
    said = refused("evaluate", model, "--suite", "msgs-ours", "--tasks", "control lenth", "--run", tmp_path / "other")
    assert "there is no task 'control lenth'; did you mean control length" in " ".join(said.split())
