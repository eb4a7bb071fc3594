"""From a model to a smaller one: what a search chose is healed and written, and plain transformers opens both."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import layerwise
from cli.conftest import save_llama, save_texts
from layerwise.runner.plan_choice import resolve_plan
from layerwise.runner.reporter import Silent
from layerwise.studies.save.verb import save

pytestmark = pytest.mark.slow

DEPTH = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("models") / "tiny", DEPTH)


def test_a_search_is_healed_and_saved(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    stack, corpus = layerwise.load(model), layerwise.read_corpus(save_texts(tmp_path / "texts", 40, 60))
    found = layerwise.search(
        stack,
        corpus,
        layerwise.Budget(layers=4),
        method="one-shot",
        dtype="float32",
        run=tmp_path / "found",
        reporter=Silent(),
    )
    plan = resolve_plan(str(tmp_path / "found"))
    assert plan == found.best
    assert len(plan.steps()) == 4
    layerwise.heal(
        model,
        corpus,
        plan=str(tmp_path / "found"),
        steps=2,
        seeds=1,
        learning_rates=(1e-3,),
        controls=(),
        max_length=24,
        run=tmp_path / "healed",
        reporter=Silent(),
    )
    save(model, plan=str(tmp_path / "found"), output=tmp_path / "pruned", reporter=Silent())
    ids = torch.tensor([[5, 6, 7, 8]])
    for folder, same in (("pruned", True), ("healed/model", False)):
        written = AutoModelForCausalLM.from_pretrained(tmp_path / folder)
        assert len(written.model.layers) == 4
        close = torch.allclose(written(ids).logits, stack.logits(str(plan), input_ids=ids), atol=1e-4)
        assert close == same
