"""Bad input gets one clear message and exit code 2: no traceback, no run directory."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, ViTConfig, ViTForImageClassification

from cli.command import layerwise, refused
from cli.conftest import DEPTH
from layerwise.results import Run, store
from threads import thread_count
from tier import first_fast
from tiny_tokenizers import character_tokenizer, word_tokenizer

FEW = ("--families", "leave_one_out", "--no-similarity")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture(scope="module")
def once(model: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "once"
    assert layerwise("sweep", model, "--text", texts, "--run", run, *FEW).code == 0
    return run


@pytest.fixture
def swept(once: Path, folder: Path) -> Path:
    return Path(shutil.copytree(once, folder))


@pytest.fixture
def sweep(model: Path, texts: Path, folder: Path) -> Callable[..., str]:
    def run(*more: str | Path, model: Path | str = model, text: Path | str = texts) -> str:
        message = refused("sweep", model, "--text", text, "--run", folder, *FEW, *more)
        assert not folder.exists()
        return message

    return run


def test_models_that_a_sweep_cannot_read_are_refused(
    sweep: Callable[..., str], own_model: Path, tmp_path: Path
) -> None:
    for file in own_model.glob("*token*"):
        file.unlink()
    assert "needs a tokenizer to read text" in sweep(model=own_model)
    assert "--tokenizer" in sweep(model=own_model)

    word_tokenizer([f"word{number}" for number in range(500)]).save_pretrained(tmp_path / "other")
    (tmp_path / "words.txt").write_text("word1 word499 word2 word3")
    message = sweep("--tokenizer", tmp_path / "other", text=tmp_path / "words.txt")
    assert "The tokenizer belongs to another model" in message

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4
    )
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    assert "must be a language model, got ViTForImageClassification" in sweep(model=tmp_path / "vit")

    config = BertConfig(vocab_size=99, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16)
    BertModel(config).save_pretrained(tmp_path / "bert")
    character_tokenizer().save_pretrained(tmp_path / "bert")
    assert "must be a language model with a head, got BertModel" in sweep(model=tmp_path / "bert")


def test_missing_text_is_refused(model: Path, folder: Path) -> None:
    assert "--text is required: pass a file or a folder" in refused("sweep", model, "--run", folder)


def test_wrong_ranges_and_plans_are_refused_with_what_to_write(sweep: Callable[..., str]) -> None:
    message = sweep("--window", "3-1")
    assert "--window must be ascending, got the descending range '3-1'. Write 1-3." in message

    lines = sweep("--plan", "0-3 4x 5").splitlines()
    assert lines[1] == "  0-3 4x 5"
    assert lines[2] == "       ^"


@pytest.mark.parametrize("verb", ["sweep", "diagnose"])
def test_too_short_text_is_refused_before_measuring(verb: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a short text, of one window alone. " * 3)
    message = refused(verb, model, "--text", tmp_path / "text.txt", "--run", tmp_path / "run")
    assert "at least 8 windows or documents for an interval, got 1 window with 105 scored tokens" in message
    assert "Use at least 1,024 tokens (a longer text, or a larger --tokens), or shorter windows" in message
    assert "--max-length 13" in message
    assert not (tmp_path / "run").exists()


def test_too_few_examples_are_refused_before_measuring(model: Path, texts: Path, folder: Path) -> None:
    message = refused("robustness", model, "--text", texts, "--max-length", "60", "--run", folder)
    assert "must have at least 8 examples, got 3" in message
    assert "Pass more documents, shorter windows" in message
    assert not folder.exists()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("0-9", f"the model has {DEPTH} layers"),
        ("0-3 (1|2", "this ( is never closed"),
        ("", "a plan must run at least one layer: write its layers, for example 0-13 (14|15)"),
    ],
)
def test_invalid_plans_are_refused(sweep: Callable[..., str], model: Path, plan: str, message: str) -> None:
    assert message in sweep("--plan", plan)
    assert message in refused("verify", model, "--plan", plan)
    assert message in refused("plan", plan, "--depth", str(DEPTH))


@pytest.mark.slow
def test_unknown_benchmarks_are_refused(sweep: Callable[..., str], tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="needs layerwise[eval]")
    message = sweep("--tasks", "arc_chalenge")
    assert "Unknown benchmark 'arc_chalenge'" in message
    assert "arc_challenge" in message
    assert "--task-folder must be a directory" in sweep(
        "--tasks", "arc_challenge", "--task-folder", tmp_path / "nowhere"
    )


def test_run_directories_in_use_are_refused(model: Path, texts: Path, swept: Path, folder: Path) -> None:
    arguments = ("sweep", model, "--text", texts, "--run", folder, *FEW)
    with Run.open(folder) as run:
        before = list(run.store.losses())
        manifest = run.manifest
    with Run.resume_or_create(folder, manifest):
        for more in ((), ("--overwrite",)):
            assert f"is in use: process {os.getpid()} is writing to it" in refused(*arguments, *more)
    with Run.open(folder) as run:
        assert list(run.store.losses()) == before


OTHERWISE = {
    "families": (("--plan", "0"), "pass the same plans or parts"),
    "dtype": (("--dtype", "float64"), "its dtype is float32, not float64. Pass --dtype float32"),
    "matmul_precision": ((), "its matmul_precision is highest, not high"),
    "model": ((), "it uses tiny, not model"),
    "text": ((), "it was measured on "),
}


@pytest.mark.parametrize("change", first_fast(OTHERWISE, 3))
def test_directories_of_other_runs_are_refused(
    model: Path,
    texts: Path,
    own_model: Path,
    swept: Path,
    folder: Path,
    tmp_path: Path,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Run.open(folder) as run:
        before = list(run.store.losses())
    weights = load_file(own_model / "model.safetensors")
    weights["model.norm.weight"] *= 2
    save_file(weights, own_model / "model.safetensors", {"format": "pt"})
    (tmp_path / "text.txt").write_text("another text, as short as it may be. " * 40)
    more, said = OTHERWISE[change]
    if change == "matmul_precision":
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    message = refused(
        *("sweep", own_model if change == "model" else model),
        *("--text", tmp_path / "text.txt" if change == "text" else texts, "--run", folder, *FEW, *more),
    )
    assert "This directory contains another run" in message
    assert said in message
    assert "--overwrite" in message
    with Run.open(folder) as run:
        assert list(run.store.losses()) == before


def test_another_number_of_threads_is_refused(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("sweep", model, "--text", texts, *FEW, "--quiet")
    assert layerwise(*arguments).code == 0
    assert layerwise(*arguments).code == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("tiny-")
    with Run.open(run) as opened:
        assert len(opened.store.sessions()) == 2
    for more in (("--batch-tokens", "100"), ()):
        if not more:
            monkeypatch.setattr(torch, "get_num_threads", lambda: thread_count() + 1)
        assert "This directory contains another run" in refused(*arguments, *more)
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert layerwise(*arguments, "--overwrite").code == 0


def test_another_processor_is_recorded_in_the_run(
    model: Path, texts: Path, swept: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("sweep", model, "--text", texts, "--run", folder, *FEW)
    with Run.open(folder) as run:
        assert run.store.notes("provenance") == []
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "ALTIVEC")
    for _ in range(2):
        ended = layerwise(*arguments)
        assert ended.code == 0
        assert "ALTIVEC" in ended.err
    with Run.open(folder) as run:
        (note,) = run.store.notes("provenance")
        assert "kernels" in note.text
        assert "last bits" in note.text
    assert "ALTIVEC" in (folder / "report.html").read_text()


def test_a_full_disk_keeps_written_rows(
    model: Path, texts: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = store.connect_for_writing

    def small(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        return connection

    sweep = ("sweep", model, "--text", texts, "--max-length", "10", *FEW)
    arguments = (*sweep, "--run", folder)
    with monkeypatch.context() as full:
        full.setattr("layerwise.results.store.connect_for_writing", small)
        assert "is full; all rows up to the last finished batch are safe" in refused(*arguments)
    with Run.open(folder) as run:
        kept = list(run.store.losses())
    assert kept
    resumed = layerwise(*arguments)
    assert resumed.code == 0
    assert f"resumed: {len(kept)} rows are stored already" in resumed.err
    whole = folder.with_name("whole")
    assert layerwise(*sweep, "--run", whole).code == 0
    with Run.open(folder) as run, Run.open(whole) as other:
        losses = list(run.store.losses())
        assert set(kept) < set(losses)
        assert losses == list(other.store.losses())


def test_an_unwritable_report_loses_no_rows(model: Path, texts: Path, folder: Path) -> None:
    (folder / "report.html").mkdir(parents=True)
    ended = layerwise("sweep", model, "--text", texts, "--run", folder, *FEW)
    assert ended.code == 2
    assert "error: Cannot write the report" in ended.err
    assert ended.out.startswith("- ")
    with Run.open(folder) as run:
        assert run.store.scores("effect")
