"""From a model to a smaller one: what a search chose is healed and written, and plain transformers opens both."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import layerwise
from layerwise.experiments.options.plans import chosen_plan
from layerwise.experiments.reporter import Silent
from layerwise.experiments.saving.config import Saving

pytestmark = pytest.mark.slow

DEMO = Path(layerwise.__file__).parent / "models" / "demo"


def test_a_search_is_healed_and_saved(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    stack, corpus = layerwise.load("demo"), layerwise.demo_corpus(texts=24, characters=300, questions=6)
    found = layerwise.search(
        stack, corpus, layerwise.Budget(layers=10), method="one-shot", run=tmp_path / "found", reporter=Silent()
    )
    plan = chosen_plan(str(tmp_path / "found"))
    assert plan == found.best
    assert len(plan.steps()) == 10
    layerwise.heal(
        "demo", corpus, plan=str(tmp_path / "found"), steps=2, seeds=1, learning_rates=(1e-3,), controls=(),
        max_length=64, run=tmp_path / "healed", reporter=Silent(),
    )  # fmt: skip
    config = Saving(models=("demo",), plan=str(tmp_path / "found"), output=tmp_path / "pruned")
    assert config.act(Silent()) == 0
    ids = torch.tensor([[5, 6, 7, 8]])
    for folder, same in (("pruned", True), ("healed/model", False)):
        model = AutoModelForCausalLM.from_pretrained(tmp_path / folder)
        assert len(model.model.layers) == 10
        close = torch.allclose(model(ids).logits, stack.logits(str(plan), input_ids=ids), atol=1e-4)
        assert close == same


def test_averages_of_layers_are_saved(tmp_path: Path) -> None:
    config = Saving(models=("demo",), plan="0-4 mean2:5 7-11", output=tmp_path / "averaged")
    assert config.act(Silent()) == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "averaged")
    whole = AutoModelForCausalLM.from_pretrained(DEMO)
    own, of_both = (each.model.layers[5].mlp.up_proj.weight for each in (model, whole))
    assert len(model.model.layers) == 11
    torch.testing.assert_close(own, (of_both + whole.model.layers[6].mlp.up_proj.weight) / 2)
