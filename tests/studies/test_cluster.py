"""A sweep on Ray gives the rows of one process, whatever the pieces, and refuses processes that differ."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import layerwise
from cli.command import refused
from cli.conftest import save_llama
from conftest import tiny_llama
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.errors import OptionError, RunError
from layerwise.results import Run, Score
from layerwise.results.rows import Loss
from layerwise.runner.reporter import Silent
from layerwise.stack import load
from layerwise.studies.sweep import cluster
from studies.describing import describe_call
from studies.neighbors import Neighbors
from tiny_tokenizers import ALPHABET, character_tokenizer


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before


@pytest.fixture
def neighbors(monkeypatch: pytest.MonkeyPatch) -> type[Neighbors]:
    monkeypatch.setattr(cluster, "RayTasks", Neighbors)
    Neighbors.opened = 0
    return Neighbors


def rows(folder: Path, *, timed: tuple[str, ...] = ("run",)) -> tuple[list[Loss], list[Score]]:
    with Run.open(folder) as run:
        return list(run.store.losses()), [score for score in run.store.scores() if score.measure not in timed]


def both(folder: Path, model: Path, texts: Path, **options: Any) -> tuple[Path, Path]:
    alone, spread = folder / "alone", folder / "spread"
    with_one_thread(model, texts, run=alone, **options)
    layerwise.sweep(model, texts, run=spread, ray="local", workers=2, reporter=Silent(), **options)
    return alone, spread


def with_one_thread(model: Any, text: Any, **options: Any) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        layerwise.sweep(model, text, reporter=Silent(), **options)
    finally:
        torch.set_num_threads(before)


def test_a_sweep(model: Path, texts: Path, tmp_path: Path, neighbors: type[Neighbors]) -> None:
    options: dict[str, Any] = {"families": ("leave_one_out",), "batch_tokens": 400, "similarity": False}
    alone, spread = both(tmp_path, model, texts, **options)
    assert rows(alone) == rows(spread)
    assert neighbors.opened == 1
    # One process of one thread can resume the run, and has nothing left to do.
    with_one_thread(model, texts, run=spread, **options)
    assert rows(alone) == rows(spread)


def test_a_sweep_that_is_complete_starts_no_worker(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"families": ("leave_one_out",), "similarity": False, "run": tmp_path / "run"}
    with_one_thread(model, texts, **options)
    monkeypatch.setattr(cluster.SweepTasks, "_start", lambda self: pytest.fail("a cluster was started"))
    layerwise.sweep(model, texts, ray="local", reporter=Silent(), **options)


def test_what_was_opened_in_python(tmp_path: Path, neighbors: type[Neighbors]) -> None:
    stack = load(tiny_llama(4, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())
    documents = tuple(Document(f"{number}", f"text {number}: sphinx of black quartz") for number in range(9))
    corpus = Corpus("texts", documents)
    options: dict[str, Any] = {"families": ("leave_one_out",), "similarity": False, "batch_tokens": 90}
    result = layerwise.sweep(
        stack, corpus, reporter=Silent(), run=str(tmp_path / "spread"), ray="local", workers=3, **options
    )
    with_one_thread(stack, corpus, run=tmp_path / "alone", **options)
    assert rows(result.folder) == rows(tmp_path / "alone")
    assert neighbors.carried_out


def test_a_worker_with_other_weights_is_refused(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, neighbors: type[Neighbors]
) -> None:
    model = save_llama(tmp_path / "model")
    opening = cluster.open_model

    def after_a_change(shared: Any) -> Any:
        tiny_llama(4, vocabulary=3 + len(ALPHABET), seed=1).save_pretrained(model)
        return opening(shared)

    monkeypatch.setattr(cluster, "open_model", after_a_change)
    with pytest.raises(RunError, match="A worker differs from the run: it uses another"):
        layerwise.sweep(model, texts, ray="local", run=tmp_path / "run", reporter=Silent())


def test_a_worker_on_another_processor_is_refused(model: Path, texts: Path) -> None:
    here = describe_call(layerwise.sweep, model, texts).manifest
    other = replace(here, hardware={**here.hardware, "kernels": "NEON"})
    with pytest.raises(RunError, match=r"machines must be of the same type.*, got kernels NEON on a worker"):
        cluster.check_same_here(here, other)
    with pytest.raises(RunError, match="its threads is 1, not 7"):
        cluster.check_same_here(
            replace(here, numerics={**here.numerics, "threads": "1"}),
            replace(here, numerics={**here.numerics, "threads": "7"}),
        )


def test_workers_without_a_cluster_are_refused() -> None:
    with pytest.raises(OptionError, match=r"^workers requires ray\.$"):
        layerwise.sweep("demo", workers=2)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("everywhere", "--ray must be local, auto or the HOST:PORT"),
        ("ray://head:10001", "Run the command on a machine of the cluster"),
        ("10.0.0.1:6379", "RAY_AUTH_MODE=token (with RAY_AUTH_TOKEN) on all machines"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    assert message in refused("sweep", "demo", "--ray", address)


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'layerwise[ray]'" in refused("sweep", "demo", "--ray", "local")


def test_a_dry_run_prints_the_number_of_shards(model: Path, texts: Path) -> None:
    options: dict[str, Any] = {"families": ("leave_one_out",), "ray": "local", "workers": 2}
    lines = describe_call(layerwise.sweep, model, texts, **options).lines
    assert any(line.startswith("2 workers: ") and line.endswith("shards of text windows and plans") for line in lines)
