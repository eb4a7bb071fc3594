"""Models of sentence-transformers from the command line: swept, healed, saved, and where else they are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import layerwise as library
from cli.command import layerwise, refused
from layerwise.data.text.sentence_embeddings import pooling_in
from layerwise.experiments.reporter import Silent
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.stack import load
from sentence_models import save_sentence_model, save_sentences

SHORT = ("--steps", "3", "--seeds", "2", "--set", "evals=1", "--batch-size", "8", "--learning-rates", "1e-4")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_sentence_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_sentences(tmp_path_factory.mktemp("texts") / "text.txt", documents=80)


def test_a_sweep_says_what_is_lost_of_the_similarities_in_their_unit(model: Path, text: Path, tmp_path: Path) -> None:
    result = library.sweep(
        model, text, families=("leave_one_out",), plan=("0 3",), tokens=320, run=tmp_path, reporter=Silent()
    )
    rows = {row.plan: row for row in result.rows if row.metric == "delta_nll"}
    assert rows["0 3"].value > 0
    assert rows["0 3"].tokens == 320
    assert "of rank correlation" in result.summary
    assert "nats" not in result.summary


@pytest.mark.slow
def test_what_a_healed_model_keeps_is_one_less_its_loss_and_it_is_written_as_a_sentence_model(
    model: Path, text: Path, tmp_path: Path
) -> None:
    ended = layerwise(
        "heal",
        model,
        "--plan",
        "0 3",
        "--text",
        text,
        "--method",
        "full",
        *SHORT,
        "--compare",
        "lora-cosine,tail-teacher",
        "--run",
        tmp_path,
    )
    assert ended.code == 0, ended.err
    with Run.open(tmp_path) as run:
        rows = run.store.scores("healing")
    kept = {row.arm: row for row in rows if row.metric == "kept"}
    assert set(kept) == {"pruned", "full-teacher", "lora-cosine", "tail-teacher", "random"}
    losses = [row.value for row in rows if row.metric == "nll" and row.arm == "full-teacher" and row.seed is not None]
    assert kept["full-teacher"].value == pytest.approx(1 - np.mean(losses))
    assert "full-teacher keeps " in ended.out
    written = tmp_path / "model"
    assert pooling_in(written) == pooling_in(model)
    assert load(written).depth == 2
    first, last = (load_file(folder / "model.safetensors") for folder in (model, written))
    name = "encoder.layer.{}.output.dense.weight"
    assert not torch.equal(first[name.format(3)], last[name.format(1)])


def test_a_saved_plan_is_a_sentence_model(model: Path, tmp_path: Path) -> None:
    for folder, source in ((tmp_path / "streamed", model), (tmp_path / "built", load(model))):
        library.save(source, "0 3", folder)
        assert pooling_in(folder) == pooling_in(model)
        assert (folder / "config_sentence_transformers.json").is_file()
        saved, stack = load(folder), load(model)
        ids = torch.arange(5, 15)[None]
        with torch.no_grad(), stack.under(Plan.parse("0 3")):
            torch.testing.assert_close(saved.model(ids).last_hidden_state, stack.model(ids).last_hidden_state)


def test_labels_and_other_verbs_are_refused(model: Path, text: Path) -> None:
    heal = ("heal", model, "--plan", "0 3", "--text", text)
    assert "have no labels" in refused(*heal, "--teacher", "none")
    assert "have no labels" in refused(*heal, "--compare", "tail-labels")
    assert "neither --images nor" in refused(*heal, "--limit", "3")
    for verb in (("search", "--budget", "layers=2"), ("diagnose",)):
        assert "makes embeddings: compare its plans" in refused(verb[0], model, "--text", text, *verb[1:])
